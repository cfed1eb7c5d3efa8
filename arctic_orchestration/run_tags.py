"""Tags of Dagster's runs that several parts of this package read."""

#: the id of the job that requested the run
JOB_TAG = "arctic/job"
#: Dagster's: the run key of the request of a run
RUN_KEY_TAG = "dagster/run_key"
#: the page of the job
PAGE_TAG = "arctic/page"
