import io

from tipprobe.series.progress import Progress, duration_text


def headless(monkeypatch, interval="0"):
    monkeypatch.setenv("TIPPROBE_HEADLESS", "1")
    monkeypatch.setenv("TIPPROBE_PROGRESS_S", interval)
    return io.StringIO()


def test_headless_progress_is_whole_lines(monkeypatch):
    stream = headless(monkeypatch)
    with Progress(4, "rollouts", stream) as progress:
        progress.update(1, reward=0.25)
        progress(3, 4)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 and all(line.startswith("» rollouts ") for line in lines)
    assert lines[0].startswith("» rollouts 1/4 (25 %)") and "reward 0.25" in lines[0]
    assert "3/4 (75 %)" in lines[1]
    assert "\r" not in stream.getvalue()


def test_headless_progress_is_silent_between_intervals(monkeypatch):
    stream = headless(monkeypatch, "3600")
    with Progress(1000, "items", stream) as progress:
        for _ in range(1000):
            progress.update()
    assert stream.getvalue().splitlines() == ["» items 1,000/1,000 (100 %), 0 s"]


def test_an_interactive_reader_gets_a_bar(monkeypatch):
    monkeypatch.delenv("TIPPROBE_HEADLESS", raising=False)
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    stream = io.StringIO()
    with Progress(2, "items", stream) as progress:
        progress.update(2)
    assert "2/2" in stream.getvalue() and "»" not in stream.getvalue()


def test_an_unknown_total_is_allowed(monkeypatch):
    stream = headless(monkeypatch)
    with Progress(None, "lines", stream) as progress:
        progress.update(5)
    assert stream.getvalue().startswith("» lines 5, ")


def test_durations_read_well():
    assert [duration_text(s) for s in (0.4, 59.6, 185, 7800)] == [
        "0 s",
        "1 min 00 s",
        "3 min 05 s",
        "2 h 10 min",
    ]
