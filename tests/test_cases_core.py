"""Scenarios from public bug reports, by number: what needs no web framework."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from tests.clock import ManualClock
from tests.coroutines import at_once
from tests.letters import answers, burst, letter, remaining, retry_after
from throttled_views import (
    Algorithm,
    Charge,
    ConfigurationError,
    InvalidKeyError,
    KeyParts,
    Limit,
    MemoryStore,
    Quota,
    RateLimitResult,
    Throttled,
    client_ip,
    compose_key,
)
from throttled_views._principals import checked_principal, encoded_principal

BUCKETS = (Algorithm.TOKEN_BUCKET, Algorithm.GCRA, Algorithm.LEAKY_BUCKET)


@pytest.fixture(name="using", params=BUCKETS)
def using_fixture(request: pytest.FixtureRequest) -> Algorithm:
    """Give each algorithm of the bucket family in turn."""
    using: Algorithm = request.param
    return using


# --- counting


async def test_case_1_parts_of_tokens_are_kept(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Half a token earned between requests counts, so nine of twelve pass."""
    throttled = Throttled("4/s burst 4", store=store, using=using)
    instants = [Fraction(number, 8) for number in range(12)]

    assert "AAAAAAADADAD" == await answers(throttled, clock, instants)


async def test_case_2a_polling_does_not_cost_time(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """A client that asks twice as often as it may is admitted every second time."""
    throttled = Throttled("1/s burst 1", store=store, using=using)
    instants = [Fraction(number, 2) for number in range(21)]

    assert "AD" * 10 + "A" == await answers(throttled, clock, instants)


@pytest.mark.parametrize(("count", "admitted"), [(120, 60), (121, 61)])
async def test_case_2b_polling_each_second(
    store: MemoryStore,
    clock: ManualClock,
    using: Algorithm,
    count: int,
    admitted: int,
) -> None:
    """At 30 a minute and one request a second, those at even seconds pass."""
    throttled = Throttled("30/m burst 1", store=store, using=using)
    letters = await answers(throttled, clock, range(count))

    assert ("AD" * 61)[:count] == letters
    assert admitted == letters.count("A")


async def test_case_4_frequent_calls_refill_exactly(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Asked each millisecond, a drained bucket gives its five tokens on time."""
    throttled = Throttled("5/s", store=store, using=using)
    await throttled.limit("alice", 5)
    letters = await answers(
        throttled, clock, [Fraction(number, 1000) for number in range(1, 1001)]
    )

    assert [200, 400, 600, 800, 1000] == [
        number for number, each in enumerate(letters, start=1) if each == "A"
    ]


async def test_case_5_the_announced_wait_is_the_real_one(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Nothing opens before the moment that was announced, and then it does."""
    throttled = Throttled("6/m", store=store, using=using)

    assert "AAAAAA" == await burst(throttled, 6)
    for instant, letter_then, wait, header in [
        (0, "D", 10.0, "10"),
        (5, "D", 5.0, "5"),
        (9.999, "D", 0.001, "1"),
        (10, "A", 0.0, None),
    ]:
        clock.set(instant)
        result = await throttled.limit("alice")

        assert (letter_then, wait, header) == (
            letter(result),
            result.state.retry_after,
            retry_after(result),
        )


async def test_case_7_denials_are_not_counted(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Who asks for 12 a minute for ten minutes gets the burst and 10 a minute."""
    throttled = Throttled("10/m", store=store, using=using)
    letters = await answers(throttled, clock, range(0, 600, 5))

    assert 109 == letters.count("A")


async def test_case_8_nobody_is_blocked_who_keeps_to_the_rate(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """One request a second, and one between, are within a burst of ten."""
    throttled = Throttled("10 per 10 s", store=store, using=using)

    assert "A" * 12 == await answers(throttled, clock, [*range(10), 9.5, 10])


async def test_case_10_a_bucket_has_no_edge(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Around a full minute there is one burst, not two: the default does not double."""
    throttled = Throttled("60/m", store=store, using=using)
    clock.set(59.9)

    assert "A" * 60 + "D" == await burst(throttled, 61)
    clock.set(60.1)
    assert "D" * 60 == await burst(throttled, 60)


async def test_case_13_what_is_kept_lives_as_long_as_it_counts(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """A key is not forgotten a period after it was made, with all it spent since."""
    throttled = Throttled("10/h", store=store, using=using)
    await throttled.limit("alice")
    clock.set(3540)
    await throttled.limit("alice", 8)
    clock.set(3660)
    for number in range(1_000):  # which looks for keys that may be forgotten
        await throttled.limit(f"k{number}")

    assert 2 == (await burst(throttled, 9)).count("A")


async def test_case_19_the_wall_clock_may_step_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wall clock that is set back by 11 seconds takes nothing from anybody."""
    wall = 1_700_000_000.0
    monkeypatch.setattr(time, "monotonic_ns", lambda: 10**15)
    monkeypatch.setattr(time, "time", lambda: wall)
    throttled = Throttled("1/s burst 10")
    await burst(throttled, 3)
    wall -= 11
    result = await throttled.limit("alice")

    assert ("A", 6) == (letter(result), result.state.remaining)


async def test_case_19_the_wall_clock_may_step_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wall clock that is set forward by an hour gives nothing to anybody."""
    wall = 1_700_000_000.0
    monkeypatch.setattr(time, "monotonic_ns", lambda: 10**15)
    monkeypatch.setattr(time, "time", lambda: wall)
    throttled = Throttled("1/s burst 10")
    await burst(throttled, 10)
    wall += 3600
    result = await throttled.limit("alice")

    assert ("D", "1") == (letter(result), retry_after(result))


async def test_case_19_the_clock_of_the_store_may_step_back(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Eight hours back after a drain, a key is whole again within its time to full."""
    throttled = Throttled("1/s burst 10", store=store, using=using)
    clock.set(8 * 3600)
    await burst(throttled, 10)
    clock.set(0)
    refused = await throttled.limit("alice")
    clock.advance(10)

    assert ("D", 0, "1") == (
        letter(refused),
        refused.state.remaining,
        retry_after(refused),
    )
    assert 10 == await remaining(throttled)


@pytest.mark.parametrize(
    ("instants_us", "expected"),
    [((100_000_999, 100_001_999), "AA"), ((100_999_999, 101_000_000), "AD")],
    ids=["a millisecond", "a microsecond"],
)
async def test_case_20_microseconds_are_a_number(
    store: MemoryStore,
    clock: ManualClock,
    using: Algorithm,
    instants_us: Sequence[int],
    expected: str,
) -> None:
    """What lies between two readings is their difference, across a second, too."""
    throttled = Throttled("1000/s burst 1", store=store, using=using)
    instants = [Fraction(each, 1_000_000) for each in instants_us]

    assert expected == await answers(throttled, clock, instants)


async def test_case_22_a_very_fast_rate_limits(
    store: MemoryStore, using: Algorithm
) -> None:
    """At half a microsecond a token, a burst of ten is ten while the clock stands."""
    throttled = Throttled("2000000/s burst 10", store=store, using=using)

    assert "AAAAAAAAAAD" == await burst(throttled, 11)


async def test_case_23_a_cost_above_the_capacity_never_passes(
    store: MemoryStore, using: Algorithm
) -> None:
    """It is denied without a wait, and leaves all for who can pay."""
    throttled = Throttled("3 per 2 s burst 3", store=store, using=using)
    never = await throttled.limit("alice", 4)
    now = await throttled.limit("alice", 3)

    assert ("D", None, None) == (
        letter(never),
        never.state.retry_after,
        retry_after(never),
    )
    assert ("A", 0) == (letter(now), now.state.remaining)


async def test_case_23_a_cost_of_zero_takes_nothing(
    store: MemoryStore, using: Algorithm
) -> None:
    """It is admitted, and the bucket stays full."""
    result = await Throttled("3 per 2 s", store=store, using=using).limit("alice", 0)

    assert ("A", 3) == (letter(result), result.state.remaining)


async def test_case_23_a_negative_cost_is_an_error(
    store: MemoryStore, using: Algorithm
) -> None:
    """It raises, and is never a refund."""
    throttled = Throttled("3 per 2 s", store=store, using=using)
    await throttled.limit("alice", 3)

    with pytest.raises(ValueError, match="whole number of 0 or more, not -1"):
        await throttled.limit("alice", -1)

    assert 0 == await remaining(throttled)


async def test_case_25_a_limit_of_zero_denies_everything(
    store: MemoryStore, clock: ManualClock, using: Algorithm
) -> None:
    """Not even the first request passes, today or tomorrow, and nothing is kept."""
    throttled = Throttled("0/h", store=store, using=using)

    assert "DDD" == await answers(throttled, clock, [0, 0, 86_400])
    assert retry_after(await throttled.limit("alice")) is None
    assert 0 == len(store)


async def test_case_26_a_quota_that_shrinks_clamps(
    store: MemoryStore, using: Algorithm
) -> None:
    """80 of 100 left become 10 of 10; one request leaves 9, and 9 of 100 if raised."""
    large, small = Quota.per_hour(100), Quota.per_hour(10)
    [before] = await store.acquire([Charge("k", large, using, cost=20)])
    [clamped] = await store.acquire([Charge("k", small, using)])
    [raised] = await store.peek([Charge("k", large, using)])

    assert (80, 9) == (before.state.remaining, clamped.state.remaining)
    assert 9 == raised.state.remaining
    assert 91 * 36.0 == raised.state.reset_after


async def test_case_26_a_full_key_does_not_jump(
    store: MemoryStore, using: Algorithm
) -> None:
    """10 of 10 left are 10 of 100, and come back one by one."""
    large, small = Quota.per_hour(100), Quota.per_hour(10)
    await store.acquire([Charge("k", large, using, cost=95)])
    await store.acquire([Charge("k", small, using)])
    [raised] = await store.acquire([Charge("k", large, using, cost=10)])

    assert ("D", 4) == (letter(raised), raised.state.remaining)
    assert 6 * 36.0 == raised.state.retry_after


async def test_case_28_a_denial_by_one_limit_charges_none(
    store: MemoryStore, using: Algorithm
) -> None:
    """A flood that its own limit stops leaves the limit of all to the others."""

    async def ask(user: str) -> str:
        results = await store.acquire(
            [
                Charge(user, Quota.per_minute(1), using),
                Charge("app", Quota.per_minute(100), using),
            ]
        )
        return max(letter(result) for result in results)

    flood = [await ask("flooder") for _ in range(200)]

    assert ["A"] + ["D"] * 199 == flood
    assert "A" == await ask("other")

    [app] = await store.peek([Charge("app", Quota.per_minute(100), using)])

    assert 98 == app.state.remaining


async def test_case_28_the_largest_wait_is_told(
    store: MemoryStore, using: Algorithm
) -> None:
    """Of several limits that refuse, the one that takes longest sets Retry-After."""
    throttled = Throttled("1/s; 1/h; 1/m", store=store, using=using)
    await throttled.limit("alice")

    assert "3600" == retry_after(await throttled.limit("alice"))


async def test_case_29_each_limit_counts_each_request_once(
    store: MemoryStore, using: Algorithm
) -> None:
    """Four limits on one route admit the least of them, and all of them count 20."""
    throttled = Throttled(
        "20/m; 200 per 10 m; 1200/h; 5000/d", store=store, using=using
    )

    assert "A" * 20 + "D" == await burst(throttled, 21)

    charges = [
        Charge(rule.key("alice"), rule.limit.quota)
        for rule in throttled.rules
        if isinstance(rule.limit.quota, Quota)
    ]
    used = [
        result.state.limit - result.state.remaining
        for result in await store.peek(charges)
    ]

    assert [20, 20, 20, 20] == used


def test_case_32_a_duplicate_is_refused() -> None:
    """The same limit twice in one list is an error at the declaration."""
    with pytest.raises(ConfigurationError, match="declared twice"):
        Throttled("5/m; 5/m")


async def test_case_32_equal_limits_of_two_scopes_are_two_counters(
    store: MemoryStore, using: Algorithm
) -> None:
    """Two limits of 5 a minute admit five requests, and not two and a half."""
    limits = [Limit("5/m", name="class"), Limit("5/m", name="route")]
    throttled = Throttled(limits, store=store, using=using)

    assert "AAAAAD" == await burst(throttled, 6)


# --- keys


def from_address(host: str) -> str:
    """Return the principal of a client at *host*."""
    return client_ip(
        HTTPConnection({"type": "http", "client": (host, 50_000), "headers": []})
    )


async def test_case_34_a_host_cannot_rotate_through_its_network(
    store: MemoryStore,
) -> None:
    """A hundred addresses of one /64 share a quota, the next /64 has its own."""
    throttled = Throttled("5/m", store=store)
    letters = [
        letter(await throttled.limit(from_address(f"2001:db8:1:2::{number:x}")))
        for number in range(100)
    ]

    assert ["A"] * 5 + ["D"] * 95 == letters
    assert "A" == letter(await throttled.limit(from_address("2001:db8:1:3::1")))


@pytest.mark.parametrize(
    "host",
    [
        "2001:db8:1:2::9",
        "2001:0db8:0001:0002:0000:0000:0000:0009",
        "2001:DB8:1:2::9",
        "2001:db8:1:2::9%eth0",
        "2001:db8:1:2::9%",
    ],
)
def test_case_34_spellings_are_one_key(host: str) -> None:
    """However an address is spelled, in full or with a zone, it is one client."""
    assert from_address("2001:db8:1:2::1") == from_address(host)


def test_case_34_the_loopback_is_one_key() -> None:
    """`::1` in full is `::1`."""
    assert from_address("::1") == from_address("0:0:0:0:0:0:0:1")


@pytest.mark.parametrize("host", ["", "%", "junk", "1.2.3", "::g", "[::1]", "例", "\0"])
def test_case_34_junk_does_not_raise(host: str) -> None:
    """What is no address is a client, too."""
    assert from_address(host)


async def test_case_35_mapped_addresses_are_ipv4(store: MemoryStore) -> None:
    """Clients of a dual-stack listener are told apart, and are who they are in IPv4."""
    throttled = Throttled("5/m", store=store)
    one, other = "::ffff:192.0.2.1", "::ffff:192.0.2.2"
    hosts = [one] * 5 + [other] * 5 + ["192.0.2.1", "::ffff:c000:201"]
    letters = [letter(await throttled.limit(from_address(host))) for host in hosts]

    assert "AAAAAAAAAADD" == "".join(letters)


def test_case_35_a_dotted_tail_is_notation() -> None:
    """IPv6 addresses that end in dots share their /64."""
    assert from_address("2001:db8:1234:5678::1.2.3.4") == (
        from_address("2001:db8:1234:5678::5.6.7.8")
    )


def test_case_35_nat64_is_keyed_by_the_embedded_address() -> None:
    """Clients behind the well-known NAT64 prefix are the IPv4 clients they are."""
    assert from_address("192.0.2.1") == from_address("64:ff9b::192.0.2.1")
    assert from_address("192.0.2.2") != from_address("64:ff9b::192.0.2.1")


async def test_case_41a_a_user_is_not_an_address(store: MemoryStore) -> None:
    """A user who is called 127.0.0.1 and a client from there have a limit each."""
    by_user = Throttled(Limit("1/m", name="user"), store=store)
    by_address = Throttled(Limit("1/m", name="address"), store=store)

    assert "A" == await burst(by_user, 1, "127.0.0.1")
    assert "A" == await burst(by_address, 1, from_address("127.0.0.1"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KeyParts("GET", "a:b", "c"), KeyParts("GET", "a", "b:c")),
        (KeyParts("GET", "a|b", "c"), KeyParts("GET", "a", "b|c")),
        (KeyParts("GET", "1", "23"), KeyParts("GET", "12", "3")),
        (KeyParts("GET", "a", "%7C"), KeyParts("GET", "a", "|")),
        (KeyParts("GET|a", "", "b"), KeyParts("GET", "a|", "b")),
    ],
)
def test_case_41b_parts_do_not_run_together(one: KeyParts, other: KeyParts) -> None:
    """No part imitates the separator, or a longer neighbour."""
    assert compose_key(one) != compose_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("y:z", "x"), ("y", "z:x")),
        (("y|z", "x"), ("y", "z|x")),
        (("y", "x|1"), ("y|x", "1")),
    ],
)
async def test_case_41c_a_key_does_not_reach_into_another_bucket(
    store: MemoryStore, one: tuple[str, str], other: tuple[str, str]
) -> None:
    """A key that looks like the end of another's is a first request of its own."""
    for bucket, key in (one, other):
        throttled = Throttled(Limit("1/m", bucket=bucket), store=store)

        assert "A" == await burst(throttled, 1, key)


async def test_case_43_two_quotas_of_a_user_are_two_counters(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A month's quota and an hour's do not meet, and each lives as long as its own."""
    slow = Throttled(Quota(10, timedelta(days=30)), store=store)
    quick = Throttled("5/h", store=store)

    assert "AAAAAA" == await burst(slow, 6)
    assert "AAAAAD" == await burst(quick, 6)
    assert 4 == await remaining(slow)
    assert (18 * 86_400.0, 3600.0) == (
        (await slow.peek("alice")).state.reset_after,
        (await quick.peek("alice")).state.reset_after,
    )

    clock.advance(3600)

    assert (4, 5) == (await remaining(slow), await remaining(quick))


async def test_case_43_two_applications_do_not_meet(store: MemoryStore) -> None:
    """Applications of different prefixes on one store count by themselves."""
    one = Throttled("5/h", store=store, prefix="one")
    other = Throttled("5/h", store=store, prefix="other")
    await burst(one, 5)

    assert 5 == await remaining(other)


HOSTILE = {
    "100 kB": "k" * 100_000,
    "100 kB and a letter": "k" * 100_001,
    "composed": "na\u00efve/\u043f\u0440\u0438\u043c\u0435\u0440/\u4f8b",
    "decomposed": "nai\u0308ve/\u043f\u0440\u0438\u043c\u0435\u0440/\u4f8b",
    "space": "a b",
    "NUL": "a\0b",
    "CR LF": "a\r\nX-Admin: 1",
    "braces": "{x}",
    "lone surrogate": "\ud800",
    "not UTF-8": b"\xff\xfe".decode("utf-8", "surrogateescape"),
}


async def test_case_49_any_text_is_a_client_of_its_own(store: MemoryStore) -> None:
    """The first request of each value passes and the second does not."""
    throttled = Throttled("1/m", store=store)
    first = [await burst(throttled, 1, value) for value in HOSTILE.values()]
    second = [await burst(throttled, 1, value) for value in HOSTILE.values()]

    assert ["A"] * len(HOSTILE) == first
    assert ["D"] * len(HOSTILE) == second


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_case_49_keys_are_short_and_plain(value: str) -> None:
    """Whatever the value, the key is bounded, printable ASCII without braces."""
    key = encoded_principal(value)

    assert 200 >= len(key)
    assert key.isascii()
    assert key.isprintable()
    assert set() == {" ", "{", "}", "|"} & set(key)


# --- asynchronous use


async def test_case_55_concurrent_calls_are_decided_at_once(
    store: MemoryStore, using: Algorithm
) -> None:
    """Of ten calls in one loop three pass, and none of them waits for anything."""
    throttled = Throttled("3 per 3 s", store=store, using=using)
    results = await asyncio.gather(*(throttled.limit("alice") for _ in range(10)))

    assert ["A"] * 3 + ["D"] * 7 == [letter(result) for result in results]
    assert "D" == letter(at_once(throttled.limit("alice")))


def in_threads(
    threads: int, calls: int, call: Callable[[], Awaitable[RateLimitResult]]
) -> str:
    """Make *calls* in each of several threads, and return their letters."""

    async def work() -> str:
        return "".join([letter(await call()) for _ in range(calls)])

    with ThreadPoolExecutor(threads) as pool:
        tasks = [pool.submit(lambda: asyncio.run(work())) for _ in range(threads)]
        return "".join(task.result(timeout=60) for task in tasks)


def test_case_55_threads_neither_overshoot_nor_hang(store: MemoryStore) -> None:
    """Of 32 threads with 1,000 calls each, exactly the quota passes."""
    throttled = Throttled("3 per 3 s", store=store)
    letters = in_threads(32, 1_000, lambda: throttled.limit("alice"))

    assert (3, 31_997) == (letters.count("A"), letters.count("D"))


def test_case_59_worker_threads_share_a_quota(store: MemoryStore) -> None:
    """Of 400 calls from 40 threads straight on one store, exactly 50 pass."""
    throttled = Throttled("50/m", store=store)
    letters = in_threads(40, 10, lambda: throttled.limit("alice"))

    assert (50, 350) == (letters.count("A"), letters.count("D"))


# --- header fields


@pytest.mark.parametrize(
    ("wait_s", "header"),
    [(0.6, "1"), (11.6, "12"), (0.001, "1"), (59.999, "60"), (60.0, "60")],
)
async def test_case_97_waits_are_rounded_up(
    store: MemoryStore, using: Algorithm, wait_s: float, header: str
) -> None:
    """An obedient client never comes too early, and gets digits only."""
    throttled = Throttled(Quota(1, wait_s), store=store, using=using)
    await throttled.limit("alice")
    refused = await throttled.limit("alice")

    assert (wait_s, header) == (refused.state.retry_after, retry_after(refused))


@pytest.mark.parametrize(
    ("text", "instant", "wait_s"),
    [
        pytest.param("2/s burst 1", 0.1, 0.4, id="2 per second"),
        pytest.param("10/200ms", 0, 0.02, id="10 per 200 ms"),
    ],
)
async def test_case_98_no_denial_says_zero(
    store: MemoryStore, clock: ManualClock, text: str, instant: float, wait_s: float
) -> None:
    """The header says at least 1 second, the result the exact wait."""
    quota = Quota.parse(text)
    throttled = Throttled(quota, store=store)
    await throttled.limit("alice", quota.burst)
    clock.set(instant)
    refused = await throttled.limit("alice")

    assert ("D", wait_s, "1") == (
        letter(refused),
        refused.state.retry_after,
        retry_after(refused),
    )


# --- memory


async def test_case_106_keys_that_never_come_back_are_forgotten(
    clock: ManualClock, using: Algorithm
) -> None:
    """What is kept follows the keys that are not full again, and not all ever seen."""
    store = MemoryStore(max_keys=100_000, clock=clock)
    ten = Quota.per_minute(10)  # a key that was used once is full again after 6 s
    longest = 0
    for number in range(10_000):  # 500 new keys in a second: 3,000 are not full
        clock.advance(0.002)
        await store.acquire([Charge(f"k{number}", ten, using)])
        longest = max(longest, len(store))

    assert 2 * 3_000 + 1_000 > longest

    clock.advance(120)
    for number in range(longest):
        await store.acquire([Charge(f"later{number}", ten, using)])

    assert (longest, 0) == (len(store), store.evictions)


async def test_case_109_an_attacker_cannot_push_itself_out(
    clock: ManualClock, using: Algorithm
) -> None:
    """After a flood of keys, who was at its limit still is, and others are let in."""
    store = MemoryStore(max_keys=1_000, clock=clock)
    throttled = Throttled("5/m", store=store, using=using)
    await burst(throttled, 5, "attacker")
    for number in range(10_000):
        await throttled.limit(f"thrown away {number}")

    assert "D" == await burst(throttled, 1, "attacker")
    assert "A" == await burst(throttled, 1, "honest")
    assert 1_000 >= len(store)
    assert (10_002 - len(store), 0) == (store.evictions, store.exhausted_evictions)


@pytest.mark.parametrize("keys", [("", "one", "two", "three"), ("0", "", "None", "a")])
async def test_case_110_the_empty_key_counts(
    clock: ManualClock, keys: Sequence[str]
) -> None:
    """To the store the empty text is a key like any other, and the bound holds."""
    store = MemoryStore(max_keys=2, clock=clock)
    for key in keys:
        [result] = await store.acquire([Charge(key, Quota.per_minute(10))])

        assert ("A", 9) == (letter(result), result.state.remaining)
        assert 2 >= len(store)

    assert (2, 2) == (len(store), store.evictions)


@pytest.mark.parametrize("key", ["", 0, False, None])
async def test_case_110_what_is_no_key_is_refused(
    store: MemoryStore, key: object
) -> None:
    """Callers and key functions cannot name anybody by what is empty or no text."""
    limit: Any = Throttled("5/m", store=store).limit

    with pytest.raises(InvalidKeyError):
        await limit(key)
    with pytest.raises(InvalidKeyError):
        checked_principal(key, from_address)


# --- configuration


@pytest.mark.parametrize(
    ("declare", "named"),
    [
        pytest.param(lambda: Limit("5 per fortnight"), "'fortnight'", id="fortnight"),
        pytest.param(lambda: Limit("1/s; 2/m"), "'1/s; 2/m'", id="list for one"),
        pytest.param(lambda: Limit("-5/m"), "'-5/m'", id="negative text"),
        pytest.param(lambda: Limit("5/0s"), "'5/0s'", id="no period in text"),
        pytest.param(lambda: Quota(-5, 60), "-5", id="negative limit"),
        pytest.param(lambda: Quota(5, -60), "-60", id="negative period"),
        pytest.param(lambda: Quota(5, 0), "Quota(5, 0)", id="no period"),
        pytest.param(lambda: Quota(5, math.nan), "nan", id="NaN"),
        pytest.param(lambda: Quota(5, math.inf), "inf", id="infinity"),
        pytest.param(lambda: Quota(limit=True, period=60), "True", id="bool limit"),
        pytest.param(lambda: Quota(5, period=True), "True", id="bool period"),
        pytest.param(lambda: Quota(5, 60, burst=0), "burst=0", id="burst of 0"),
        pytest.param(lambda: Quota(5, 60, burst=-1), "burst=-1", id="burst below 0"),
        pytest.param(lambda: Quota(10**30, 60), f"{10**30}", id="huge limit"),
        pytest.param(lambda: Quota(5, 10**30), f"{10**30}", id="huge period"),
        pytest.param(lambda: Quota(5, 60, burst=10**30), f"{10**30}", id="huge burst"),
        pytest.param(lambda: Limit("5/m", cost=6), "cost=6", id="cost above burst"),
        pytest.param(lambda: Limit("5/m", cost=-1), "-1", id="negative cost"),
        pytest.param(lambda: Limit("5/m", cost=True), "True", id="bool cost"),
        pytest.param(lambda: Throttled([]), "empty list", id="empty list"),
        pytest.param(lambda: Throttled("5/m;"), "5/m;", id="end of a list"),
    ],
)
def test_case_113_a_wrong_declaration_fails_when_it_is_made(
    declare: Callable[[], object], named: str
) -> None:
    """Nothing that is declared wrong waits for a request, and the error names it."""
    with pytest.raises(ConfigurationError) as caught:
        declare()

    assert named in str(caught.value)


def test_case_113_text_may_be_a_list() -> None:
    """Where several quotas can stand, a text may have several, and means a list."""
    assert Throttled(["1/s", "2/m"]).limits == Throttled("1/s; 2/m").limits
