"""Slips in the paper that matter for anyone who computes with it."""

from __future__ import annotations

from initscope.papers.item import Erratum

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        "JL Theorem 3",
        "variance ν = 2/r²",
        "ν² = 2/r²",
        "`tests/bounds/test_similarity.py`: the bounds hold for ν² = 2/r², and Remark 2's examples meet them with "
        "equality",
        ("nachum2022/thm3", "nachum2022/remark2"),
    ),
    Erratum(
        "JL §1.1",
        "for ρ ≠ 1 each ReLU CNN layer is contracting",
        "never expanding: where all patches are parallel or zero the similarity is kept, as Remark 2's third example "
        "has it",
        "the example at ρ = 1/2 keeps 1/2",
        ("nachum2022/remark3", "nachum2022/remark2"),
    ),
    Erratum(
        "JL Example 1",
        "|∂_r| = 4r(e+f) for e, f ≥ 2r",
        "also needs room on the torus: the hull of both rectangles plus 2r must fit",
        "`tests/geometry/test_boundaries.py` has the counter-examples",
        ("nachum2022/example1",),
    ),
    Erratum(
        "JL eq. 20",
        "‖σ(u)‖_ψ2 ≤ C₀Lν|x| for any Lipschitz σ",
        "needs σ(0) = 0, or |σ(0)|/√ln 2 added; Theorem 2 inherits it",
        "`tests/bounds/test_filter_constants.py`: softplus of a small input; σ(z) = z + 100 breaks Theorem 2 as "
        "printed",
        ("nachum2022/thm2",),
    ),
    Erratum(
        "JL Corollary 1",
        "K has ν² below",
        "ν_σ²: ρ_out does not depend on ν, the printed K does",
        "`tests/bounds/test_filter_constants.py`: with ν = 30 the printed count fails more often than not",
        ("nachum2022/cor1",),
    ),
    Erratum(
        "JL Corollary 1",
        "ε ≤ 1/10",
        "holds up to ε = 3, see [filters](filters.md)",
        "`tests/bounds/test_filter_constants.py`: the elementary inequality, worst case 2ε/(5 - ε)",
        ("nachum2022/cor1",),
    ),
    Erratum(
        "JL Corollary 1, proof",
        "|A| ≤ 1",
        "|A'| ≤ 1; A is only at most √(BC)",
        "`tests/bounds/test_filter_constants.py`: A above 1",
    ),
    Erratum(
        "JL Theorem 2, proof",
        "properties 1 and 2 of Lemma 4",
        "3 and 2, and 2 is stated for ψ2 but used for ψ1; centring can be avoided altogether",
        "[filters](filters.md)",
        ("nachum2022/lemma4",),
    ),
    Erratum(
        "JL Lemma 4.1",
        "‖ΣX_i‖² ≤ C Σ‖X_i‖² for independent sub-Gaussian X_i",
        "needs mean zero: n constants of 1 are independent and have the ratio n",
        "Orlicz norms by quadrature; nothing in the paper rests on it",
        ("nachum2022/lemma4",),
    ),
    Erratum("JL Remark 3", "points to (22c)", "(24b)", "the inequality meant is a ≤ R̂(a)", ("nachum2022/remark3",)),
    Erratum(
        "JL Theorem 5, proof",
        "σ̂(·, ·, 2/(2r+1)) in and before (29)",
        "σ̂(·, ·, √2/(2r+1)): the third argument is a standard deviation, and ν² = 2/(2r+1)²",
        "with 2/(2r+1) a full patch has σ̂ = 2, where the proof uses 1",
        ("nachum2022/thm5",),
    ),
    Erratum(
        "JL Theorem 5, proof",
        "A_(i+c1, j+d1) = 1 as the second condition for σ̂ ≠ 0",
        "B_(i+c1, j+d1) = 1",
        "Definition 2, eq. 15a",
    ),
    Erratum(
        "JL §4.1",
        "relative norm difference 9.2 %, not defined",
        "several readings exist",
        "`tests/geometry/test_channels.py`; the item shows four readings, none of which can be confirmed",
        ("nachum2022/channels",),
    ),
    Erratum(
        "JL §4.2",
        "duals of orthogonal and Gaussian weights coincide in the limit of large input dimensions",
        "true, and for ReLU they coincide at every dimension: only the length of a row differs, and ReLU scales with "
        "it",
        "sampled at input dimensions 2, 3, 8 and 32",
        ("nachum2022/orthogonal",),
    ),
    Erratum(
        "JL Remark 3, §4.2",
        "one slope, 0.97, for figures 1b, 1c and 1d",
        "it depends on the filter size, and on the images",
        "exact slopes from 1x1 to 21x21 filters",
        ("nachum2022/slope", "nachum2022/fig1b", "nachum2022/fig1c", "nachum2022/fig1d"),
    ),
)
