"""Slips in OP, each with what shows it."""

from initscope.papers.item import Erratum

ERRATA = (
    Erratum(
        "OP Theorem 3",
        'the error is independent of masks and weights, which "hold in practice"',
        "behind a random read-out, nearly; not for an error along the activations, such as the sum of the last ReLU's outputs",
        "`tests/finite/test_gradients.py`: the ratio of the first of 15 layers is above 1 by more than ten standard errors",
        ("overparam/thm3",),
    ),
    Erratum(
        "OP Theorem 3, footnote",
        "∂ℓ/∂a_{l+1} independent of the mask of layer l and of W_{l+1}",
        "impossible as said, since W_{l+1} makes the mask of layer l+1; enough, and exact: ∂ℓ/∂a_L independent of the weights. "
        "Cross-entropy violates that by a term of order 1/width",
        "`tests/finite/test_norm_law.py`: fixed errors follow the law, cross-entropy drifts; proof in [widths](widths.md)",
        ("overparam/thm3",),
    ),
    Erratum(
        "OP eq. 120, 134",
        "0.5 + 1/√(1 ∓ 2λ)",
        "0.5 + 0.5/√(1 ∓ 2λ); 121 and 135 as printed are then too small, 122 and 136 right, and Lemma 5 stands",
        "`tests/bounds/test_width.py`: the mean over a million units",
        ("overparam/lemma5",),
    ),
    Erratum(
        "OP Lemma 3",
        "squared norms within 1 ± ε (10)",
        "the proof gives norms within 1 ± ε (74, 98); for (10) it needs √(1+ε) - 1 in place of ε",
        "[widths](widths.md)",
        ("overparam/lemma3",),
    ),
    Erratum(
        "OP Lemma 3, proof",
        "Δ with √(3d); (2/Δ)^d grid points; R/√2 has entries N(0, 1)",
        "√3 d, as in (9); (2/Δ + 1)^d; N(0, 1/m)",
        "[widths](widths.md)",
        ("overparam/lemma3",),
    ),
    Erratum(
        "OP Theorem 2, proof",
        "the first layer's output lies in d dimensions (16), so Lemma 3 (called theorem 3) applies again",
        "it lies in a union of up to 2 Σ C(n-1, i) pieces of d dimensions, and eq. 11 is not proved; two replacements in "
        "[widths](widths.md)",
        "`tests/bounds/test_subspace.py`: 3 input dimensions, rank 400 after a layer of 400",
        ("overparam/thm2",),
    ),
    Erratum("OP appendix", 'calls Theorem 3 "Theorem 2"', "Theorem 3", ""),
    Erratum(
        "OP §4.2, eq. 25",
        "the mean of |1 - |h|/|x|| beside Lemma 2's ε at δ = 0.05",
        "Lemma 2 bounds squared norms, about twice as far from 1, and a quantile, not a mean",
        "[widths](widths.md): exact widths for the same target are 0.38 to 0.46 of Lemma 2's",
        ("overparam/fig2",),
    ),
    Erratum(
        "OP §4.2, eq. 26",
        "the distortion of |∂W| in a network of one hidden layer, for Lemma 5",
        "with one layer |∂W| = |δ||x| exactly (19), and eq. 26 is zero; Lemma 5 is about the error that comes back through a "
        "layer, |∂a|/|δ|",
        "eq. 19",
        ("overparam/fig2",),
    ),
    Erratum(
        "OP Lemma 6",
        '"a standard Gaussian distribution, R_ij ~ N(0, 1/m)"',
        "variance 1/m, which is not standard",
        "",
        ("overparam/lemma6",),
    ),
)
