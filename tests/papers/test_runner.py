"""Results are kept, found again, recomputed when anything changed, and never half there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from initscope.errors import BadInput
from initscope.papers import (
    Desk,
    Outcome,
    Plan,
    Record,
    Source,
    choose_source,
    compare,
    read_record,
    run_item,
    run_items,
)
from initscope.papers import record as records
from initscope.papers.desk import make_desk
from papers.fakes import Counted, failing, item, outcome


def plan(folder: Path | None, size: str = "quick", seed: int = 0, source: Source | None = None) -> Plan:
    return Plan(source or Source(), size=size, seed=seed, folder=folder)


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    (made,) = run_items([item()], plan(tmp_path))
    found = read_record(tmp_path, "overparam/fake")
    assert found == replace(made, reused=True)
    assert made.svg is not None
    assert made.svg.startswith("<svg")
    written = json.loads((tmp_path / "overparam/fake.json").read_text())
    assert written["schema"] == "initscope.papers.item/1"
    low, high = written["checks"][0]["interval"]
    assert low < 0.9712 < high
    assert sorted(p.name for p in (tmp_path / "overparam").iterdir()) == ["fake.json", "fake.svg"]


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    counted = Counted()
    one = item(run=counted)
    first = list(run_items([one], plan(tmp_path)))
    second = list(run_items([one], plan(tmp_path)))
    assert counted.calls == 1
    assert not first[0].reused
    assert second[0].reused
    assert second[0].checks == first[0].checks


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(list(run_items([item()], plan(None)))) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["size", "seed", "title", "source text", "version", "data", "filters"])
def test_whatever_changes_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    counted, folder = Counted(), tmp_path / "out"
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "cifar10.npz", x_train=np.zeros((4, 32, 32, 3), np.uint8))
    monkeypatch.setenv("INITSCOPE_WEIGHTS", str(tmp_path))
    one = replace(item(run=counted, sets=("cifar10",)), filters=("vgg16",))
    how = plan(folder, source=choose_source(str(data)))
    list(run_items([one], how))
    if change == "size":
        how = replace(how, size="normal")
    elif change == "seed":
        how = replace(how, seed=1)
    elif change == "title":
        one = replace(one, title="Another title")
    elif change == "source text":
        monkeypatch.setattr(records, "_sources", lambda package: "edited")
    elif change == "version":
        monkeypatch.setattr(records, "__version__", "99")
    elif change == "filters":
        (tmp_path / "vgg16.safetensors").write_bytes(b"filters")
    else:
        np.savez(data / "cifar10.npz", x_train=np.ones((4, 32, 32, 3), np.uint8))
    list(run_items([one], how))
    assert counted.calls == 2


@pytest.mark.parametrize("damage", ["cut json", "no svg", "other svg", "empty json", "other schema"])
def test_damaged_results_are_computed_again(tmp_path: Path, damage: str) -> None:
    counted = Counted()
    list(run_items([item(run=counted)], plan(tmp_path)))
    document, drawing = tmp_path / "overparam/fake.json", tmp_path / "overparam/fake.svg"
    if damage == "cut json":
        document.write_bytes(document.read_bytes()[:100])
    elif damage == "no svg":
        drawing.unlink()
    elif damage == "other svg":
        drawing.write_text("<svg/>")
    elif damage == "empty json":
        document.write_text("{}")
    else:
        document.write_text(document.read_text().replace("papers.item/1", "papers.item/0"))
    (found,) = run_items([item(run=counted)], plan(tmp_path))
    assert counted.calls == 2
    assert not found.reused


def test_a_failing_item_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    chosen = [item("overparam/a"), item("overparam/b", failing), item("overparam/c")]
    made = list(run_items(chosen, plan(tmp_path)))
    assert [record.failed for record in made] == [False, True, False]
    assert made[1].problem.startswith("ZeroDivisionError: a fault in the item (fakes.py:")
    assert not (tmp_path / "overparam/b.json").exists()
    again = list(run_items([*chosen[:1], item("overparam/b"), chosen[2]], plan(tmp_path)))
    assert [record.reused for record in again] == [True, False, True]


def test_a_failure_takes_the_old_result_of_other_settings_away(tmp_path: Path) -> None:
    list(run_items([item("overparam/b")], plan(tmp_path)))
    list(run_items([item("overparam/b", failing)], plan(tmp_path, seed=5)))
    assert read_record(tmp_path, "overparam/b") is None
    assert not list((tmp_path / "overparam").iterdir())


def test_bad_input_of_an_item_keeps_its_own_words() -> None:
    def refuse(desk: Desk) -> Outcome:
        raise BadInput("fig1", "needs pytorchcv", "pip install it")

    assert run_item(item(run=refuse), plan(None)).problem == "fig1: needs pytorchcv; pip install it"


def test_an_interrupt_is_not_a_failure(tmp_path: Path) -> None:
    def stop(desk: Desk) -> Outcome:
        raise KeyboardInterrupt

    running = run_items([item("overparam/a"), item("overparam/b", stop)], plan(tmp_path))
    assert next(running).key == "overparam/a"
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert [p.name for p in sorted((tmp_path / "overparam").iterdir())] == ["a.json", "a.svg"]


def test_leftovers_of_killed_processes_are_swept_and_others_stay(tmp_path: Path) -> None:
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    (tmp_path / "overparam").mkdir()
    ours = [tmp_path / f"overparam/.fake.json.{gone}.part", tmp_path / f".index.html.{gone}.part"]
    others = [tmp_path / f".index.html.{os.getpid()}.part", tmp_path / "my.part"]
    for path in (*ours, *others):
        path.write_text("half")
    list(run_items([item()], plan(tmp_path)))
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)


def test_folders_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    counted, file = Counted(), tmp_path / "file"
    file.write_text("mine")
    for folder, said in ((file, "is a file"), (file / "below", "cannot create")):
        with pytest.raises(BadInput, match=said):
            list(run_items([item(run=counted)], plan(folder)))
    assert counted.calls == 0
    assert file.read_text() == "mine"


def test_content_that_is_not_plain_is_a_failure() -> None:
    def odd(desk: Desk) -> Outcome:
        return replace(outcome(desk), data={"net": torch.nn.Identity()})

    assert "got a Identity" in run_item(item(run=odd), plan(None)).problem


def test_tensors_and_nan_become_plain_numbers() -> None:
    content = {"t": torch.tensor([1.0, float("inf")]), "n": np.float64("nan"), "i": np.int64(3), "b": np.bool_(True)}
    assert records.plain(content) == {"t": [1.0, None], "n": None, "i": 3, "b": True}


def test_the_global_generator_is_settled_and_restored() -> None:
    def draw(desk: Desk) -> Outcome:
        return replace(outcome(desk), data={"drawn": torch.rand(3)})

    torch.manual_seed(12)
    expected = torch.rand(2)
    torch.manual_seed(12)
    one, two = (run_item(item(run=draw), plan(None)) for _ in range(2))
    assert one.data == two.data
    assert torch.equal(torch.rand(2), expected)


class TestData:
    def test_without_sets_photographs_of_the_same_shape_stand_in(self) -> None:
        desk, told = make_desk(item(sets=("fashion_mnist", "cifar10")), Source())
        assert desk.images("fashion_mnist", count=2).images.shape == (2, 1, 28, 28)
        assert desk.pairs("cifar10", pairs=2, size=11).x.shape == (2, 3, 11, 11)
        assert list(told.words) == [
            "photographs of the same shape in place of Fashion-MNIST",
            "photographs of the same shape in place of CIFAR-10",
        ]

    def test_a_folder_of_sets(self, tmp_path: Path) -> None:
        train, test = np.zeros((3, 32, 32, 3), np.uint8), np.full((3, 32, 32, 3), 255, np.uint8)
        np.savez(tmp_path / "cifar10.npz", x_train=train, x_test=test)
        desk, told = make_desk(item(sets=("cifar10", "mnist")), choose_source(str(tmp_path)))
        assert float(desk.images("cifar10", count=3).images.max()) == 0
        assert float(desk.images("cifar10:x_test", count=3).images.min()) == 1
        desk.images("mnist", count=1)
        assert list(told.words) == ["CIFAR-10", "photographs of the same shape in place of MNIST"]

    def test_the_environment_names_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        np.savez(tmp_path / "mnist.npz", x_train=np.zeros((3, 28, 28), np.uint8))
        monkeypatch.setenv("INITSCOPE_DATA", str(tmp_path))
        assert choose_source() == Source(folder=tmp_path)
        assert choose_source("photos") == Source(name="photos")
        monkeypatch.delenv("INITSCOPE_DATA")
        assert choose_source() == Source()

    def test_the_users_own_source_replaces_all_sets(self) -> None:
        desk, told = make_desk(item(sets=("mnist",)), choose_source("dead-leaves"))
        assert desk.images("mnist", count=2).images.shape == (2, 1, 28, 28)
        assert list(told.words) == ["dead-leaves in place of MNIST"]

    def test_the_seed_of_the_run_is_the_default(self) -> None:
        one, two, three = (make_desk(item(sets=("mnist",)), Source(), seed=s)[0] for s in (1, 1, 2))
        images = [desk.images("mnist", count=2).images for desk in (one, two, three)]
        assert torch.equal(images[0], images[1])
        assert not torch.equal(images[0], images[2])
        assert torch.equal(images[2], one.images("mnist", count=2, seed=2).images)

    def test_generators_pass_through(self) -> None:
        desk, told = make_desk(item(), Source())
        assert desk.pairs("gaussian:0.5", pairs=3, size=8, channels=1).correlation is not None
        assert not told.words

    def test_a_set_that_is_not_declared_is_refused(self) -> None:
        desk, _ = make_desk(item(sets=("mnist",)), Source())
        with pytest.raises(BadInput, match="asks for cifar10"):
            desk.images("cifar10", count=1)

    @pytest.mark.parametrize("place", ["--data", "INITSCOPE_DATA"])
    def test_missing_and_empty_folders_are_refused(
        self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for folder, said in ((tmp_path / "nowhere", "no folder"), (tmp_path, "holds none of the papers' sets")):
            monkeypatch.setenv("INITSCOPE_DATA", str(folder))
            with pytest.raises(BadInput, match=said) as caught:
                choose_source(str(folder) if place == "--data" else None)
            assert caught.value.place == place

    def test_data_that_cannot_be_read_is_refused_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput):
            choose_source(f"folder:{tmp_path}")

    @pytest.mark.parametrize("form", ["npz:{}/mine.npy", "npz:{}/mine.npz:x", "idx:{}/mine.idx", "folder:{}"])
    def test_the_users_files_are_part_of_the_identity(self, form: str, tmp_path: Path) -> None:
        def write(count: int) -> None:
            images = np.zeros((count, 8, 8), np.uint8)
            np.save(tmp_path / "mine.npy", images)
            np.savez(tmp_path / "mine.npz", x=images)
            (tmp_path / "mine.idx").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, count]) + bytes(count))
            (tmp_path / "below").mkdir(exist_ok=True)
            (tmp_path / "below" / "mine.pgm").write_bytes(b"P5 1 1 255 " + bytes(count))

        source = Source(name=form.format(tmp_path))
        write(2)
        before = source.identity("mnist")
        assert source.identity("mnist") == before
        write(3)
        assert source.identity("mnist") != before

    @pytest.mark.parametrize("name", ["photos", "dead-leaves", "gaussian:0.5"])
    def test_sources_without_files_have_one_identity(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        before = choose_source(name).identity("mnist")
        (tmp_path / "0.5").write_text("mine")
        (tmp_path / "other.png").write_text("mine")
        assert choose_source(name).identity("mnist") == before


class TestStandIns:
    """A figure printed for a set is not held against other pictures."""

    @staticmethod
    def asks(desk: Desk) -> Outcome:
        desk.images("mnist", count=2)
        return replace(outcome(desk), checks=(*outcome(desk).checks, compare("one", "2", exact=1.0, why="its own why")))

    @pytest.mark.parametrize(
        ("data", "words"), [(None, "photographs of the same shape"), ("dead-leaves", "dead-leaves")]
    )
    def test_printed_figures_are_open_and_claims_are_not(
        self, data: str | None, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("INITSCOPE_DATA", raising=False)
        found = run_item(item(run=self.asks, sets=("mnist",)), plan(None, source=choose_source(data)))
        assert [check.agrees for check in found.checks] == [None, False, None, None]
        why = f"the printed figure is not about these pictures: {words} in place of MNIST"
        assert [check.why for check in found.checks] == [
            why, "because of <it>", "the figure has no digits", f"{why}; its own why"
        ]  # fmt: skip

    def test_the_real_set_is_held_against_them(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "mnist.npz", x_train=np.zeros((4, 28, 28), np.uint8))
        found = run_item(item(run=self.asks, sets=("mnist",)), plan(None, source=choose_source(str(tmp_path))))
        assert [check.agrees for check in found.checks] == [True, False, None, False]
        assert found.given == ("MNIST",)

    def test_so_is_an_item_without_pictures(self) -> None:
        assert run_item(item(), plan(None)).checks[0].agrees is True


def test_failed_records_say_so() -> None:
    assert Record("a/b", "t", "s", "quick", 0, problem="x").failed
    assert not Record("a/b", "t", "s", "quick", 0).failed
