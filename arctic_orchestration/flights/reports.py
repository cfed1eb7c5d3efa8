"""The second code location of ``workspace.yaml``: a batch that depends on the first one's lake.

It has no assets of the lake and no schedules of its own. Its batch needs tasks of the location
``flights``, and tasks there need some of its own, though each is loaded without the other.
"""

import dagster as dg

from arctic_orchestration import Freshness
from arctic_orchestration.flights.batches import NETWORK, PUNCTUALITY
from arctic_orchestration.lake.spark_resource import pyspark_resource

defs = dg.Definitions.merge(
    Freshness(batches=[NETWORK], elsewhere=[PUNCTUALITY]).definitions(),
    dg.Definitions(
        resources={"pyspark": pyspark_resource()},
        # Steps share their process, and so its Spark session, as in the location flights.
        executor=dg.in_process_executor,
    ),
)
