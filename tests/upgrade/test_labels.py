from pytest_mlms.upgrade.labels import point_label, sides_label


def test_the_framework_is_left_out_where_the_stack_is_named_after_it() -> None:
    label = sides_label("onnxruntime==1.31", "onnxruntime==1.30", "onnxruntime")
    assert label == "onnxruntime==1.31 (B) against onnxruntime==1.30 (A)"
    assert sides_label("new", "old", "mxnet") == "new (B) against old (A), mxnet"


def test_a_point_is_the_device_and_the_batch_size() -> None:
    assert point_label("cuda:0", 8) == "cuda:0-b8"
