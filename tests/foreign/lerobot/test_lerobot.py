def test_x():
    import bare_torchvision
    import lerobot.scripts.lerobot_train
    import torchcodec
    assert "av.libs" in open("/proc/self/maps").read()
