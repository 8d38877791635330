"""Results files of other shapes than the published one, each with what the audit must say of its sentences."""

PLACES = {
    "source": "arXiv 2301.00001, Table 2",
    "results": [
        {"method": "NetVLAD", "MSLS": {"R@1": 53.1, "R@5": 66.5}, "Pitts30k": {"R@1": 81.9, "R@5": 91.2}},
        {"method": "CosPlace", "MSLS": {"R@1": 84.7, "R@5": 90.1}, "Pitts30k": {"R@1": 88.4, "R@5": 94.5}},
        {"method": "MixVPR", "MSLS": {"R@1": 88.0, "R@5": 92.7}, "Pitts30k": {"R@1": 91.5, "R@5": 95.5}},
    ],
}
# Sentence → severities of the differences found in it, in order.
PLACES_SENTENCES = {
    "MixVPR improves R@1 by 3.3 points over CosPlace on MSLS.": ["right"],
    "MixVPR improves R@1 by 3.4 points over CosPlace on MSLS.": ["error"],
    "NetVLAD is 31.6 points below CosPlace in R@1 on MSLS.": ["right"],
    "NetVLAD is 31.6 points above CosPlace in R@1 on MSLS.": ["error"],
    "MixVPR beats CosPlace by 3.1 R@1 on Pitts30k and 3.3 R@1 on MSLS.": ["right", "right"],
    "MixVPR beats CosPlace by 3.1 R@1 on Pitts30k and 3.9 R@1 on MSLS.": ["right", "error"],
    "MixVPR outperforms NetVLAD on Pitts30k R@5 (+4.3).": ["right"],
    "MixVPR outperforms NetVLAD on Pitts30k R@5 (+3.4).": ["error"],
    "CosPlace lags behind MixVPR by 2.6 R@5 on MSLS.": ["right"],
    "Compared with NetVLAD, MixVPR gains +34.9 R@1 on MSLS.": ["right"],
    "Over CosPlace, MixVPR gains −3.3 R@1 on MSLS.": ["error"],
    "CosPlace exceeds MixVPR by 3.3 R@1 on MSLS.": ["error"],
    # Not differences of results.
    "We train for 3.3 days over 4 GPUs and use 12% of the images.": [],
    "The learning rate drops by 0.1 after epoch 30.": ["note"],
}

SHOP = {
    "name": "acme",
    "benchmark": "sop",
    "results": {"baseline": {"mAP": 41.2}, "reranked": {"mAP": 44.9}, "query expansion": {"mAP": 43.0}},
    "summary": "Re-ranking adds 3.7 mAP over the baseline. Query expansion is 1.8 points above the baseline and "
    "1.9 points below the reranked system.",
}

COMPARISON = {
    "model": "foo",
    "note": "only methods that rerank a top-100 shortlist are compared",
    "rows": [
        {"system": "foo, top-100", "source": "this release", "ILIAS": {"mAP@1000": 22.9}},
        {"system": "bar, top-400", "source": "Bar, arXiv 2502.00001, Table 3", "ILIAS": {"mAP@1000": 19.6}},
        {"system": "baz, top-100", "source": "Baz, arXiv 2502.00002, Table 1", "ILIAS": {"mAP@1000": 20.3}},
    ],
    "claims": ["foo exceeds the best published mAP@1000 on ILIAS.", "foo is 3.3 points above bar on ILIAS."],
}

AUDIT = {
    "full": {"description": "everything", "train_images": 10_000, "train_classes": 500},
    "clean": {
        "description": "everything minus the 20 classes that match queries",
        "train_images": 9_550,
        "train_classes": 480,
    },
    "leaks": {
        "found": "20 classes containing 450 images match a query",
        "image_precision": 0.5,
        "image_precision_ci95": [0.45, 0.55],
        "image_recall": "220 of 400 contaminated images found, 55%",
    },
}
