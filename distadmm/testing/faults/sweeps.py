"""Faults that are done to a sweep of runs; the same command goes on."""

import shutil
from pathlib import Path

from distadmm.errors import DONE
from distadmm.testing.faults import judge
from distadmm.testing.faults.kinds import CASES, Fault
from distadmm.testing.faults.trial import (
    QUIET,
    REFUSED,
    RESUMED,
    WENT_ON,
    Stage,
    Verdict,
    compared,
    damage,
    words_of,
)

_CASE = CASES["sweep"]


def trial(stage: Stage, fault: Fault) -> Verdict:
    reference = stage.reference("sweep")
    if fault.kind.name.endswith(" file"):
        return _damaged(stage, fault, reference)
    folder = stage.fresh()
    words, log = words_of(_CASE, folder), folder.with_suffix(".tap")
    if not fault.kind.fault:
        both = [stage.fork(_CASE, words, QUIET, log) for _ in range(2)]
        wrong: dict[str, str] = {}
        for life in [fork.wait(stage.limit) for fork in both]:
            wrong |= judge.ended(life, fault.kind.codes)
    else:
        life = stage.alone(_CASE, words, (fault.rank, fault.fault, fault.where, str(fault.call)), log)
        wrong = judge.ended(life, fault.kind.codes)
    return _gone_on(stage, fault, folder, reference, wrong)


def _gone_on(stage: Stage, fault: Fault, folder: Path, reference: Path, wrong: dict[str, str]) -> Verdict:
    words, log = words_of(_CASE, folder), folder.with_suffix(".tap")
    for _ in range(20):  # a run of a sweep that was killed goes on by itself to its end
        life = stage.alone(_CASE, words, QUIET, log)
        if life.code == DONE or "in use" not in life.said:
            break
    lost = judge.ended(life, (DONE,))
    if "code" in lost:
        lost["lost"] = lost.pop("code")
    wrong |= lost
    if not wrong:
        wrong |= compared(folder, reference)
    return Verdict(fault, RESUMED, wrong)


def _damaged(stage: Stage, fault: Fault, reference: Path) -> Verdict:
    """In a run that is finished, or was killed: what is finished is told, the rest made anew."""
    folder = shutil.copytree(stage.killed("sweep"), stage.fresh())
    name = damage(folder, stage.reference("sweep"), fault)
    life = stage.alone(_CASE, words_of(_CASE, folder), QUIET, folder.with_suffix(".tap"))
    wrong = {what: f"{name}: {how}" for what, how in judge.ended(life, fault.kind.codes).items()}
    if life.code != DONE:
        return Verdict(fault, REFUSED, wrong)
    return Verdict(fault, WENT_ON, wrong)
