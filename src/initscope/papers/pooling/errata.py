"""Slips in the paper that matter for anyone who computes with it."""

from __future__ import annotations

from initscope.papers.item import Erratum

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        "PC Theorem 4.1, proof",
        "Var ≤ 1/(4n)",
        "Var of ReLU is 1/2 - 1/(2π) = 0.341; the result is exact anyway",
        "`tests/networks/test_theory.py`: 1 - ρ' = π(1 - ρ̂)/(π + n - 1)",
        ("pooling/thm4-1",),
    ),
    Erratum(
        "PC Theorem 4.1, proof",
        "E(A_x - A_y)² ≤ Var + Var, = 1/(2n)",
        "needs a covariance that is not negative: false for ρ < 0; the true value is (1 - ρ̂)/n, up to 1/n",
        "exact second moments of ReLU over all angles",
        ("pooling/thm4-1",),
    ),
    Erratum(
        "PC Theorem 4.2",
        "1 - ρ' = O(1/log n)",
        "true, not tight: π²/(24 log² n)",
        "`tests/layers/test_extremes.py`",
        ("pooling/thm4-2",),
    ),
    Erratum(
        "PC §5",
        "max pooling contracts more than average pooling in both architectures",
        "in the dense network only for groups up to a size: 114 units for opposite inputs, 50 for orthogonal ones (the paper's "
        "size), 17 at cosine 0.5; for white noise average pooling is ahead in the CNN too",
        "exact values of both",
        ("pooling/discussion", "pooling/fig2", "pooling/fig3"),
    ),
    Erratum(
        "PC Corollary 4.3",
        "for any pair of vectors",
        "not for images whose patches do not vary: constant images 1 and -1 stay orthogonal for every n",
        "`tests/papers/pooling/test_statements.py`: the counter-example, exactly",
        ("pooling/cor4-3",),
    ),
    Erratum(
        "PC Theorem 4.4",
        "C = 1 - O(d)",
        "1 - O(1/d); in truth 1 - O(1/d²): d²(1 - C) < π - 1/2 for every filter size tried",
        "C in closed form, `tests/papers/pooling/test_gaussian_images.py`",
        ("pooling/thm4-4",),
    ),
    Erratum(
        "PC Theorem 4.4, eq. 29 and 31",
        "(2k-1)²k² ≤ 2k⁴; d² - 9k² windows are disjoint from a given one",
        "4k⁴; d² - (2k-1)². With eq. 31 as printed the lower bound of C exceeds 1; repaired: C ≥ 1/(1 + (π-1)(2k-1)²/d²)",
        "windows counted one by one; E[s]²Λ = k²/π exactly",
        ("pooling/thm4-4", "pooling/fig6"),
    ),
    Erratum(
        "PC appendix D",
        "Var ≤ Σ|α_i|/d²",
        "Var ≤ (Σ|α_i|/d²)², and sharper (1/2 - 1/(2π)) (Σ|α_i|/d²)², reached by constant images",
        "exact variances; as printed it fails for pixels from 0 to 255",
        ("pooling/appendix-d",),
    ),
    Erratum(
        "PC Table 2",
        "blocks κ x κ, κ x (d-κ), (d-κ) x κ, κ x κ; ρ(x, y) from -0.99 to -0.80",
        "the blocks do not make a square, and y = -x has ρ = -1 and orthogonal ReLU features",
        "nearest reading in the item; the table cannot be reproduced as printed",
        ("pooling/table2",),
    ),
    Erratum(
        "PC §3.1",
        "x and y = -x have zero sample mean, and their average-pooled similarity varies with κ",
        "with zero mean it is 1 for every κ on the torus: r(z) - r(-z) = z has mean zero",
        "`tests/papers/pooling/test_statements.py`",
        ("pooling/table2",),
    ),
    Erratum(
        "PC Table 2, head",
        "ρ(A(F(x)), A(F(x))), and M alike",
        "ρ(A(F(x)), A(F(y)))",
        "as printed both columns are 1",
    ),
    Erratum("PC eq. 2", "P_i = {in+1, ..., (i+1)n} for i = 1 .. m", "{(i-1)n+1, ..., in}", "the last group is outside the layer"),
    Erratum("PC §5", "Figure 5(a)-(f) shows the mean shift", "Figure 4", "captions", ("pooling/fig4",)),
)  # fmt: skip
