"""Images on the page, read back from their ``data:`` addresses: scores, selected pixels and centres."""

import base64
import struct
import zlib

import numpy as np

from sketchselect.report.page import render


def decode_png(address):
    """Return (indexes, palette with opacity) of a palette PNG without row filters."""
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    raw = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not raw[:, 0].any()
    palette = np.frombuffer(chunks[b"PLTE"], dtype=np.uint8).reshape(-1, 3)
    return raw[:, 1:], palette, np.frombuffer(chunks[b"tRNS"], dtype=np.uint8)


def test_pixels_are_where_the_columns_are(bare_run, parse):
    scores = np.array([0.0, 5.0, 1.0, 2.0, np.nan, 10.0])
    html = render(*bare_run(n_columns=6, scores=scores, support=[1, 5], image_shape=[2, 3]))
    heat, mask = (decode_png(image["src"]) for image in parse(html).all("img"))
    assert mask[2][mask[0]].astype(bool).tolist() == [[False, True, False], [False, False, True]]
    assert heat[2][heat[0]].astype(bool).tolist() == [[True, True, True], [True, False, True]], "NaN is clear"
    brightness = heat[1].astype(int).sum(axis=1)[heat[0]].ravel()[[0, 2, 3, 1, 5]]
    assert (np.diff(brightness) > 0).all(), "cividis grows with the score"


def test_channels_and_large_images_show_their_highest(bare_run, parse):
    scores = np.zeros(600 * 500)
    scores[7 * 500 + 11] = 1.0
    html = render(*bare_run(n_columns=scores.size, scores=scores, support=[7 * 500 + 11], image_shape=[600, 500]))
    heat, mask = (decode_png(image["src"]) for image in parse(html).all("img"))
    assert heat[0].shape == mask[0].shape == (200, 167)
    assert np.argwhere(mask[0]).tolist() == np.argwhere(heat[0] == 255).tolist() == [[2, 3]]
    rgb = np.zeros((4, 5, 3))
    rgb[1, 2, 2] = 1.0
    html = render(*bare_run(n_columns=60, scores=rgb.ravel(), support=[23], image_shape=[4, 5, 3]))
    heat, mask = (decode_png(image["src"]) for image in parse(html).all("img"))
    assert np.argwhere(heat[0] == 255).tolist() == np.argwhere(mask[0]).tolist() == [[1, 2]]


def test_centres_are_images_on_one_scale(bare_run, parse):
    centres = np.array([[0.0, 1, 2, 3, 4, 5], [5, 5, 5, 5, 5, 10], [7, 7, 7, 7, 7, 7]])
    html = render(
        *bare_run(
            n_columns=6, scores=np.zeros(6), support=[1], image_shape=[2, 3], cluster_weights=[4, 5, 0], centres=centres
        )
    )
    images = [image for image in parse(html).all("img") if "cluster" in image["alt"]]
    assert [image["alt"] for image in images] == ["Mean image of cluster 0", "Mean image of cluster 1"], "2 is empty"
    levels = [decode_png(image["src"])[0].astype(int) - 1 for image in images]
    for level, centre in zip(levels, centres, strict=False):
        assert np.abs(level / 254 - centre.reshape(2, 3) / 10).max() <= 0.5 / 254 + 1e-12
    assert "centres" not in parse(render(*bare_run(cluster_weights=[4, 5], centres=np.zeros((2, 4))))).words


def test_large_centres_show_the_mean_of_each_block(bare_run, parse):
    pixels = np.random.default_rng(0).uniform(size=(100, 193, 2))
    pixels[0, 0], pixels[-1, -1] = 0.0, 1.0
    settings = {"n_columns": pixels.size, "scores": np.zeros(pixels.size), "support": [1], "image_shape": [100, 193, 2]}
    html = render(*bare_run(**settings, cluster_weights=[9], centres=pixels.reshape(1, -1)))
    level = decode_png(next(i["src"] for i in parse(html).all("img") if "cluster" in i["alt"]))[0].astype(int) - 1
    assert level.shape == (34, 65), "blocks of 3 x 3"
    block = np.array([[pixels[i : i + 3, j : j + 3].mean() for j in range(0, 193, 3)] for i in range(0, 100, 3)])
    expected = (block - block.min()) / (block.max() - block.min())
    assert np.abs(level / 254 - expected).max() <= 0.5 / 254 + 1e-12
