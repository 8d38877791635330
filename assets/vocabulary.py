"""What a system learns from training images before it can describe any other."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"training": "training"},
    output="artifacts/{benchmark}/{system}/vocabulary",
    parameters=("system.encoder", "system.learning"),
    picks=("encoder",),
    kinds=("numpy",),
)
def vocabulary(job: Job) -> None:
    """What the encoder learns from the training images (visual words, PCA); systems that learn nothing say so."""
    from cairn.systems import learn_vocabulary

    learn_vocabulary(job)
