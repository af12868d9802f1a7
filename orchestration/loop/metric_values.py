"""The numbers behind the metrics: counts, of which the number of series is limited, and histograms, by labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.core import Metric as Family

from orchestration.loop.metric_names import NONE, OTHER, Labels, Metric
from orchestration.output import printable

# Labels whose values come from reports, in the order in which `other` replaces them when there are too many series.
_MADE_UP = ("error_class", "topic")

# The longest value of a label, in characters.
_LETTERS = 200


@dataclass
class Counts:
    """Numbers by labels. The first `limit` series have all labels; in as many more the class is `other`, in the rest the topic, too."""

    metric: Metric
    limit: int
    values: dict[Labels, float] = field(default_factory=dict)
    _series: list[int] = field(default_factory=lambda: [0] * len(_MADE_UP))

    def add(self, labels: Iterable[str | None], amount: float = 1) -> None:
        """Adds to the number under these labels, or under `other` if there are too many series."""
        key = self._within_limit(tuple(map(_label, labels)))
        self.values[key] = self.values.get(key, 0) + amount

    def _within_limit(self, key: Labels) -> Labels:
        for coarseness, name in enumerate(_MADE_UP):
            if name not in self.metric.labels:
                continue
            if key in self.values:
                return key
            if self._series[coarseness] < self.limit:
                self._series[coarseness] += 1
                return key
            place = self.metric.labels.index(name)
            key = (*key[:place], OTHER, *key[place + 1 :])
        return key


@dataclass
class Histogram:
    """Observations by labels: how many in each bucket (the last one has no bound), and their sum."""

    metric: Metric
    values: dict[Labels, tuple[list[int], float]] = field(default_factory=dict)

    def add(self, labels: Labels, bucket: int, count: int, total: float) -> None:
        """Adds observations that fall into one bucket, counted from 0, and their sum."""
        counts, before = self.values.get(labels, ([0] * (len(self.metric.buckets) + 1), 0.0))
        counts[bucket] += count
        self.values[labels] = counts, before + total

    def observe(self, labels: Labels, value: float) -> None:
        """Adds one observation."""
        self.add(labels, bisect_left(self.metric.buckets, value), 1, value)


def _label(value: str | None) -> str:
    """Foreign text as the value of a label: cut, without line breaks and without what can't be printed."""
    if value is None:
        return NONE
    return printable(value[:_LETTERS]).replace("\n", "\ufffd")


def histogram_family(metric: Metric, values: Mapping[Labels, tuple[Sequence[int], float]]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(f"{bound:g}" for bound in metric.buckets), "+Inf"]
    for labels, (counts, total) in values.items():
        family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family
