"""The stand-in for GISETTE has its shape and its probes; the user's own files are read as they are."""

import numpy as np
import pytest

from distadmm.data.gisette import COLUMNS, TRAINING, build_standin, load_gisette
from distadmm.errors import InputError


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Blots instead of digits; a nine is darker on one side."""
    rng = np.random.default_rng(0)
    digit = np.repeat([4, 9], 3_600).astype(np.uint8)
    img = rng.integers(0, 256, size=(7_200, 28, 28)) * (rng.random((7_200, 28, 28)) < 0.3)
    img[digit == 9, :, 14:] //= 3
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, img=img.astype(np.uint8), digit=digit)
    return path


@pytest.mark.slow
def test_the_standin_has_the_shape_of_gisette(archive):
    training, test = build_standin(archive)
    assert training.X.shape == (TRAINING, COLUMNS)
    assert test.X.shape == (1_000, COLUMNS)
    assert training.y.sum() == test.y.sum() == 0
    assert training.X.min(axis=0).max() == -1.0
    assert training.X.max(axis=0).min() == 1.0
    difference = training.X[training.y > 0].mean(axis=0) - training.X[training.y < 0].mean(axis=0)
    noise = 2 * training.X.std(axis=0) / np.sqrt(TRAINING)
    silent = np.abs(difference) < 4.5 * noise
    assert 2_500 <= silent.sum() < 4_000  # every probe, and the products of pixels of the other side
    assert "stand-in" in training.name
    again, _ = build_standin(archive)
    assert (again.X == training.X).all()


def test_archives_of_something_else_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones(3))
    with pytest.raises(InputError, match="arrays img and digit"):
        build_standin(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", img=np.ones((2, 784)), digit=np.array([4, 9]))
    with pytest.raises(InputError, match="3,500 fours"):
        build_standin(tmp_path / "b.npz")


def test_own_files_are_read_as_they_are(tmp_path):
    (tmp_path / "train").write_text("+1 1:0.5 5000:-1\n-1 2:1\n")
    (tmp_path / "test").write_text("-1 3:1\n")
    training, test = load_gisette(tmp_path / "train", tmp_path / "test")
    assert training.n_features == test.n_features == COLUMNS
    assert training.X.toarray()[0, [0, 4999]].tolist() == [0.5, -1.0]
    (tmp_path / "test").write_text("3 3:1\n")
    with pytest.raises(InputError, match="labels other than"):
        load_gisette(tmp_path / "train", tmp_path / "test")
