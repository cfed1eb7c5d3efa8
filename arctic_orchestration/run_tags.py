"""Tags of Dagster's runs that more than one part of this package reads."""

#: the id of the job that asked for the run
JOB_TAG = "arctic/job"
#: Dagster's: the key of the request that a run was made of
RUN_KEY_TAG = "dagster/run_key"
