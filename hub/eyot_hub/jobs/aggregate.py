"""The job `aggregate`: bronze to silver, silver to gold, each table from its own position."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.bronze import bronze_table
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.gold.gold import Aggregator, GoldRound
from eyot_hub.jobs.silver.silver import Refiner, SilverRound
from eyot_hub.jobs.tables.increments import streams_in
from eyot_hub.jobs.tables.table import Fenced, Refusals


@dataclass
class AggregateRound:
    """The results of one round for each table."""

    silver: list[SilverRound] = field(default_factory=list)
    gold: list[GoldRound] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether anything was new."""
        return any(one.read or one.quarantined for one in self.silver) or any(one.rows for one in self.gold)


class Aggregate:
    """All silver and gold tables of a configuration; call `round` repeatedly."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self.bronze = bronze_table(config)
        self.silver = {one.name: Refiner(spark, config, one, self.bronze) for one in config.silver}
        self.gold = {one.name: Aggregator(spark, config, one, self.silver[one.silver].table) for one in config.gold}

    def round(self) -> AggregateRound:
        """Bring every table up to the present end of bronze. A round that another job overtook is repeated."""
        written = [table for one in self.silver.values() for table in (one.quarantine, one.table)]
        refusals = Refusals([*written, *(one.table for one in self.gold.values())])
        while True:
            try:
                return self._round()
            except Fenced as fenced:
                refusals.allow(fenced)

    def rebuild(self, names: set[str]) -> AggregateRound:
        """Rebuild the named silver and gold tables (empty: all); gold is rebuilt after its silver table."""
        self.bronze.refresh()
        streams = streams_in(self._spark, self.bronze)
        done = AggregateRound()
        for name, refiner in self.silver.items():
            if not names or name in names:
                done.silver.append(refiner.rebuild(streams))
        rebuilt = {one.name for one in done.silver}
        for name, aggregator in self.gold.items():
            if not names or name in names or aggregator.silver_name in rebuilt:
                aggregator.silver.refresh()
                done.gold.append(aggregator.rebuild(streams))
        return done

    def _round(self) -> AggregateRound:
        self.bronze.refresh()
        streams = streams_in(self._spark, self.bronze)
        done = AggregateRound()
        for refiner in self.silver.values():
            done.silver.append(refiner.round(streams))
        for aggregator in self.gold.values():
            done.gold.append(aggregator.round(streams))
        return done
