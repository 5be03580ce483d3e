"""Slips of DC, with what shows them."""

from initscope.papers.item import Erratum

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        "Theorem 4, proof",
        "k = k1 Π k2, z* = z*_(L-2) / Π k2",
        "k = k1 √(Π k2), z* = z*_(L-2) / √(Π k2), or z* is not √(Σ n|X|²)",
        "`tests/bounds/test_convergence.py` counts the routes",
        ("random-cnn/thm1",),
    ),
    Erratum(
        "Theorem 2",
        "λ_i from ε(z*) and |z*|",
        "from ε(z*²) and |z*²|, as Theorem 8 has it",
        "`tests/bounds/test_variance.py`: with z* the step sin θ' ≤ λ sin β fails",
        ("random-cnn/thm2",),
    ),
    Erratum(
        "Theorems 2 and 8",
        "at most one route between two pixels",
        "Lemma 7 uses windows that are disjoint and of equal size, which is more; with an operator norm in λ neither is needed",
        "`tests/bounds/test_variance.py`: 1x1 then 3x3 filters have one route and break Lemma 7",
        ("random-cnn/thm2", "random-cnn/thm8", "random-cnn/lemma7"),
    ),
    Erratum(
        "Theorems 2 and 8",
        "sin Θ ≤ s + √((L-2) s Π λ)",
        "true, not tight: sin Θ ≤ s, for any windows; proof in [reconstruction](reconstruction.md)",
        "`tests/bounds/test_variance.py`, sampled networks and the cases of equality",
        ("random-cnn/thm2", "random-cnn/thm8"),
    ),
    Erratum(
        "Theorem 8, proof",
        "δ_i with K2 of layer i",
        "of layer i - 1, or the δ_i do not add up to δ; sums run over convolutions only",
        "",
    ),
    Erratum(
        "Theorems 3 and 9",
        "X̄_t the mean of the patch around t",
        "the padded zeros count in it; with the mean over the image's own pixels the bound is false",
        "`tests/bounds/test_reconstruction.py`: a constant image",
        ("random-cnn/thm3",),
    ),
    Erratum(
        "4.1 and 4.2",
        "weights in N(0, 0.1), a variance or a deviation",
        "no picture depends on it: without biases ReLU networks are homogeneous, and the output is shown by its range",
        "`tests/images/test_architectures.py`: weights ten times as large give the same directions",
    ),
    Erratum(
        "A.1.2",
        '"a small variance around 0.015", then δ = 0.015',
        "0.015 is the standard deviation: the interval μ ± 3δ makes sense of no other reading",
        "`tests/weights/test_moments.py`: as a variance it would multiply squared norms by 4.3 in a ReLU layer of 64 channels, "
        "as a deviation by 0.065",
    ),
    Erratum(
        "A.1.2",
        'uniform on [-0.04, 0.04], "such that the interval equals [μ - 3δ, μ + 3δ]" with δ = 0.015',
        "that interval is ±0.045; ±0.04 has the deviation 0.023, neither δ nor that of the other laws",
        "`tests/weights/test_moments.py`; `dc_uniform` is ±0.04, as printed",
    ),
    Erratum(
        "Definition 1",
        "filters are isotropic; A.1.2 draws uniform, logistic and Laplace weights",
        "independent weights are isotropic only if Gaussian, so the theorems cover one of the four laws",
        "`tests/weights/test_moments.py`: E ReLU(wy) depends on the direction of y; `moments` refuses",
    ),
)
