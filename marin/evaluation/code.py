"""Which files decide a log-likelihood: their digest is recorded with every number that is made of some."""

SCORING = (
    "marin/evaluation/scoring.py",
    "marin/evaluation/subject.py",
    "marin/exact/compiled.py",
    "marin/exact/functions.py",
    "marin/exact/guarded.py",
    "marin/exact/integers.py",
    "marin/exact/program.py",
    "marin/exact/reading.py",
    "marin/exact/threefry.py",
    "marin/process/arithmetic.py",
    "marin/recipe/arithmetic.py",
    "marin/recipe/evaluation.py",
    "marin/recipe/mixture.py",
    "marin/recipe/model.py",
    "marin/recipe/schema.py",
    "marin/recipe/section.py",
    "marin/training/imported.py",
    "marin/training/model.py",
    "marin/training/runtime/products.py",
    "marin/training/state.py",
)
