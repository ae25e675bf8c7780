"""Views of a text: its halves, in any script, and what is left out."""

import unicodedata
from collections import Counter

import numpy as np
import pytest
from searches import of_words, views_of

ENGLISH = "The old man plays a flute,  and it\trains.\nA dog sleeps."


CHINESE = "我昨天在公园里看见一只小狗。"


THAI = "ผู้หญิงกำลังเล่นกีตาร์ที่บ้าน"


HINDI = "एक आदमी बगीचे में गिटार बजा रहा है"


KHMER = "ខ្ញុំចូលចិត្តស្តាប់ចម្រៀង"


@pytest.mark.parametrize(
    ("text", "odd", "even"),
    [
        ("The  old dog\tsleeps on it.\n", "The  dog\ton", "old sleeps it."),
        ("我爱 Python 编程。好", "我Python 程好", "爱 编。"),
        (2 * "กีตาร์ที่บ้าน", 2 * "กีาที่า", 2 * "ตร์บ้น"),
        ("하나 둘 셋 넷 다섯 여섯 일곱 여덟", "하나 셋 다섯 일곱", "둘 넷 여섯 여덟"),
    ],
)
def test_odd_and_even_units_are_words_or_characters(text, odd, even):
    views = {whole: halves for whole, _, _, *halves in views_of([*of_words(199), text])}
    assert views[text.strip()] == [odd, even]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, THAI, HINDI, KHMER])
def test_halves_have_all_of_a_text_and_keep_marks_with_their_letters(text):
    views = {whole: halves for whole, _, _, *halves in views_of([*of_words(199), text])}
    odd, even = views[text]
    assert Counter("".join(text.split())) == Counter("".join((odd + even).split()))
    assert not any(unicodedata.category(half[0]).startswith("M") for half in (odd, even))


def test_three_words_of_ten_stay():
    kept = [
        [len(thinned.split()) for thinned in (one, other)]
        for _, one, other, _, _ in views_of(of_words(200))
    ]
    assert np.mean(kept) == pytest.approx(20 * 0.3 + 0.7, abs=0.2)  # one stays in any case
    assert np.min(kept) > 0
    for whole, one, other, *_ in views_of(of_words(200)):
        for view in (one, other):
            assert view.split() == [word for word in whole.split() if word in view.split()]


def test_views_of_a_text_depend_on_it_and_the_seed_alone():
    texts = of_words(100)
    views = views_of(texts, n_texts=100)
    assert views_of(texts[::-1] + texts[:7], n_texts=100) == views
    assert views_of(texts, n_texts=30) == views[:30]
    others = views_of(texts, n_texts=100, random_state=1)
    assert {v[0] for v in others[:30]} != {v[0] for v in views[:30]}
    for one, other in zip(sorted(views), sorted(others), strict=True):
        assert one[1:3] != other[1:3]
        assert (one[0], one[3:]) == (other[0], other[3:])  # nothing to draw


def test_short_texts_and_repeated_ones_are_left_out():
    texts = of_words(198), ["one two three four five", "one two three four five six", CHINESE]
    found = {whole for whole, *_ in views_of([*texts[0], *texts[1], CHINESE[:5], *texts[1]])}
    assert found == {*texts[0], *texts[1][1:]}
