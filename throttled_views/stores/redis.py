"""
The Redis store: a script in the server makes each decision, by the server's clock.

Rules of this file:

1. Python sends numbers and reads numbers. It never reads a key, thinks, and writes the
   key back.
2. The only clock is the server's, so that all workers agree.
3. A charge is never sent twice, unless the server said that it did not execute it. The
   retries of redis-py are not used for charges.

It needs the extra ``redis``, and Redis 6.2 or Valkey 7.2, or newer ones.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast

try:
    from redis.asyncio import Redis, RedisCluster
    from redis.exceptions import RedisError
except ModuleNotFoundError as error:
    msg = "RedisStore needs redis-py. Write: pip install 'throttled_views[redis]'"
    raise ModuleNotFoundError(msg, name=error.name) from error

from throttled_views.algorithms.base import AnyKernel
from throttled_views.algorithms.bucket import Bucket
from throttled_views.algorithms.kernels import counter_of
from throttled_views.errors import ConfigurationError, StoreUnavailableError
from throttled_views.results import Charge, RateLimitResult, Receipt
from throttled_views.stores.base import Clock, checked_clock, quick
from throttled_views.stores.courier import Courier, Line, Word
from throttled_views.stores.deciding import (
    Reader,
    Share,
    State,
    Taken,
    TakenTogether,
    decide,
    look,
    take_together,
)
from throttled_views.stores.denials import (
    Begun,
    Denials,
    Pair,
    pair_of,
    prices_asked,
    prices_of,
)
from throttled_views.stores.lines import ClusterLine, ConnectionLine
from throttled_views.stores.statistics import StoreStatistics
from throttled_views.stores.wire import (
    Asked,
    Script,
    Spec,
    encoded_key,
    script_of,
    spec_of,
)

__all__ = ["RedisStore"]

_Client: TypeAlias = "Redis | RedisCluster"
_SubjectT = TypeVar("_SubjectT")

_LINES = 2  # connections: client and server work at the same time
_CLUSTER_LINES = 64  # of a cluster's client, which has its own connections
_TIME_OF_THE_SERVER = -(2**53)  # no clock says that; one may well say 0


class _Home(NamedTuple):
    """What a store has in one event loop."""

    client: _Client
    is_ours: bool
    is_cluster: bool
    courier: Courier

    def slot_of(self, key: str) -> int:
        """Return where *key* is in a cluster; all is in one place elsewhere."""
        if not self.is_cluster:
            return 0
        # In our bytes, whatever encoding the client has for its own keys.
        return cast("RedisCluster", self.client).keyslot(encoded_key(key))

    async def aclose(self) -> None:
        await self.courier.aclose()
        if self.is_ours:
            await self.client.aclose()


@quick
class RedisStore:
    """
    Keep keys in Redis or Valkey, one server, a Sentinel's or a cluster.

    The checks of one iteration of the event loop are one call of a script. Each loop
    has connections of its own, two, beside those of the client's pool.

    Args:
        client: A URL (``redis://``, ``rediss://``, ``unix://``), or a function without
            parameters that makes a client, to serve any number of event loops; or a
            client of `redis.asyncio` of your own, of which a cluster's serves its own
            event loop only. What the store did not open it does not close.
        timeout: Seconds that a check may take, with all waiting, before the store
            counts as unavailable.
        clock: Clock to use instead of the server's, in microseconds, for tests. Keys
            then live a minute longer than they need to.

    Raises:
        ConfigurationError: *client* is none, or *timeout* is not above 0.
    """

    may_be_down: ClassVar[bool] = True

    def __init__(
        self,
        client: str | _Client | Callable[[], _Client],
        *,
        timeout: float = 0.25,
        clock: Clock | None = None,
    ) -> None:
        self._make_client, self._is_ours = _maker(client)
        given = cast("object", timeout)
        is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if not is_number or not timeout > 0:
            msg = (
                f"timeout={timeout!r} is no number above 0. Write seconds, such as 0.25"
            )
            raise ConfigurationError(msg)
        self._timeout = timeout
        clock = checked_clock(clock)
        self._clock_us: Clock = clock or (lambda: _TIME_OF_THE_SERVER)
        self._homes: dict[asyncio.AbstractEventLoop, _Home] = {}
        self._denials = Denials(clock)

    @property
    def statistics(self) -> StoreStatistics:
        """What was refused so far without the server; see `StoreStatistics`."""
        return StoreStatistics(cached_refusals=self._denials.hits)

    async def acquire(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """
        Charge all of *charges*, or none; see `Store.acquire`.

        In a cluster this holds for keys of one slot, such as all of one client. Charges
        to several slots, and to one key by several quotas, are made one after the
        other, and given back, best effort, if a later one is refused or fails.
        """
        if any(map(_is_too_dear, charges)) or any(
            _is_hopeless(*each) for each in prices_of(charges).items()
        ):
            now_us, states = await self._states(charges)
            return decide(charges, _reader_of(states), now_us).results
        results: dict[int, RateLimitResult] = {}
        for group in _groups(charges, self._home().slot_of):
            some = [charges[index] for index in group]
            try:
                told = await self._acquire_together(some)
            except BaseException:  # also where the request was cancelled
                await self._give_back(list(results.values()))
                raise
            results |= zip(group, told, strict=True)
            if any(result.limited for result in told):
                return await self._refusal(charges, results, group)
        return [results[index] for index in range(len(charges))]

    async def _give_back(self, results: Sequence[RateLimitResult]) -> None:
        receipts = [each for result in results for each in result.receipts]
        with suppress(StoreUnavailableError):
            await self.refund(receipts)

    async def _refusal(
        self,
        charges: Sequence[Charge],
        results: Mapping[int, RateLimitResult],
        refused: Sequence[int],
    ) -> Sequence[RateLimitResult]:
        """Give back what other slots than the last were charged, and tell of them."""
        others = [index for index in range(len(charges)) if index not in refused]
        if not others:
            return [results[index] for index in refused]
        await self._give_back([results[index] for index in others if index in results])
        untouched = [charges[index] for index in others]
        try:
            looks = await self.peek(untouched)
        except StoreUnavailableError:  # it is refused all the same
            looks = look(untouched, _reader_of_one(None), 0)
        told = {
            **dict(zip(others, looks, strict=True)),
            **{index: results[index] for index in refused},
        }
        return [told[index] for index in range(len(charges))]

    async def _acquire_together(
        self, charges: Sequence[Charge]
    ) -> Sequence[RateLimitResult]:
        """Charge keys of one slot, each held to one quota."""
        prices = prices_of(charges)
        may_remember = not any(each.refundable for each in charges)
        known = self._denials.verdict(charges, prices) if may_remember else None
        if known is not None:
            return known
        home, asked = self._home(), _asked(prices)
        slot = home.slot_of(charges[0].key)
        told = home.courier.check(asked, _states_of, slot)
        admitted, now_us, begun, found = await told
        states = dict(zip(prices, found, strict=True))
        if admitted:
            self._denials.drop(key for key, _ in prices)
        elif may_remember:
            self._denials.note(prices, states, now_us, begun)
        return decide(charges, _reader_of(states), now_us).results

    async def peek(self, charges: Sequence[Charge], /) -> Sequence[RateLimitResult]:
        """Tell what `acquire` would answer, and change nothing; see `Store.peek`."""
        results: dict[int, RateLimitResult] = {}
        for group in _groups(charges, self._home().slot_of):
            # Each on its own: what a log tells depends on the price.
            now_us, found = await self._look(
                [(pair_of(charges[index]), charges[index].cost) for index in group]
            )
            for index, state in zip(group, found, strict=True):
                [results[index]] = look([charges[index]], _reader_of_one(state), now_us)
        return [results[index] for index in range(len(charges))]

    async def _states(
        self, charges: Sequence[Charge]
    ) -> tuple[int, Mapping[Pair, State]]:
        """Return where the keys of *charges* stand, and when that was."""
        now_us, states = 0, dict[Pair, State]()
        for group in _groups(charges, self._home().slot_of):
            prices = prices_of([charges[index] for index in group])
            at_us, found = await self._look(list(prices.items()))
            states |= zip(prices, found, strict=True)
            if any(kernel.capacity for _, kernel in prices):
                now_us = at_us  # else nobody was asked for the time
        return now_us, states

    async def _look(
        self, prices: Sequence[tuple[Pair, int]]
    ) -> tuple[int, Sequence[State | None]]:
        """Return where keys of one slot stand, as far as each price needs to know."""
        asked = [
            (key, spec_of(kernel, price if price <= kernel.capacity else 0))
            for (key, kernel), price in prices
            if kernel.capacity
        ]
        if not asked:
            return 0, [None] * len(prices)
        _, now_us, _, found = await self._home().courier.look(asked, _states_of)
        states = iter(found)
        return now_us, [
            next(states) if kernel.capacity else None for (_, kernel), _ in prices
        ]

    async def refund(self, receipts: Sequence[Receipt], /) -> None:
        """
        Give charges back; see `Store.refund`.

        Whoever asked may be cancelled meanwhile: it is done all the same.
        """
        keys = [each.charge.key for each in receipts]
        with self._forgetting(keys):
            home = self._home()
            groups = [
                [receipts[index] for index in group]
                for group in _slots(keys, home.slot_of)
            ]
            commands = [
                home.courier.command(*self._refund_of(group), is_due=True)
                for group in groups
            ]
            await asyncio.gather(*commands)

    def _refund_of(self, receipts: Sequence[Receipt]) -> tuple[Script, Sequence[Word]]:
        """Return what gives charges to keys of one slot back."""
        specs = [_spec_of_charge(each.charge) for each in receipts]
        keys = [encoded_key(each.charge.key) for each in receipts]
        script = script_of("refund", frozenset(spec.kind for spec in specs))
        raw = b"".join(spec.raw for spec in specs)
        times = struct.pack(f"<{len(keys)}d", *(each.at_us for each in receipts))
        return script, (len(keys), *keys, self._clock_us(), raw, times)

    async def reset(self, keys: Sequence[str], /) -> None:
        """Forget *keys*; see `Store.reset`."""
        with self._forgetting(keys):
            for group in _slots(keys, self._home().slot_of):
                some = [encoded_key(keys[index]) for index in group]
                await self._home().courier.command(None, ("UNLINK", *some))

    @contextmanager
    def _forgetting(self, keys: Sequence[str]) -> Generator[None]:
        """Know of no denials of *keys* from before or during what is done to them."""
        self._denials.forget(keys)
        try:
            yield
        finally:
            self._denials.forget(keys)

    async def aclose(self) -> None:
        """
        Close what this store opened for the running event loop. May be called twice.

        Whoever uses it after that opens it again.
        """
        home = self._homes.pop(asyncio.get_running_loop(), None)
        if home is not None:
            await home.aclose()

    def taker(
        self,
        head: str,
        principal_of: Callable[[_SubjectT], str],
        tail: str,
        kernel: AnyKernel,
        cost: int,
    ) -> Callable[[_SubjectT], Taken | asyncio.Future[Taken]]:
        """
        Return a function that charges *cost* to one key, as `acquire` does.

        See `MemoryStore.taker`. Where the answer has to be waited for, the function
        returns what is to be awaited.
        """
        spec = spec_of(kernel, cost)
        denials, homes = self._denials, self._homes
        known, running_loop = denials.known, asyncio.get_running_loop

        def take(subject: _SubjectT) -> Taken | asyncio.Future[Taken]:
            key = f"{head}{principal_of(subject)}{tail}"
            denial = known.get(key)
            if denial is not None:
                taken = denials.taken(key, spec, denial)
                if taken is not None:
                    return taken
            home = homes.get(running_loop()) or self._home()
            slot = home.slot_of(key) if home.is_cluster else 0
            return home.courier.check(((key, spec),), self._taken, slot)

        return take

    def _taken(
        self,
        asked: Asked,
        admitted: bool,  # noqa: FBT001
        now_us: int,
        begun: Begun | None,
        answer: Sequence[int],
    ) -> Taken:
        [(key, spec)] = asked
        if not admitted:
            pair, state = (key, spec.kernel), spec.state(now_us, answer)
            self._denials.note({pair: spec.cost}, {pair: state}, now_us, begun)
        elif self._denials.known:
            self._denials.drop((key,))
        return spec.taken(key, admitted, now_us, answer)

    def taker_together(
        self, principal_of: Callable[[_SubjectT], str], shares: Sequence[Share]
    ) -> Callable[[_SubjectT], TakenTogether | asyncio.Future[TakenTogether]]:
        """
        Return a function that charges all of *shares*, or none, as `acquire` does.

        See `MemoryStore.taker_together`. The keys of one client are in one slot.
        """
        parts = [
            (head, tail, spec_of(kernel, cost)) for head, tail, kernel, cost in shares
        ]

        def take_all(
            subject: _SubjectT,
        ) -> TakenTogether | asyncio.Future[TakenTogether]:
            principal = principal_of(subject)
            asked = [(f"{head}{principal}{tail}", spec) for head, tail, spec in parts]
            if self._denials.known:
                taken = self._denials.taken_together(asked)
                if taken is not None:
                    return taken
            home = self._home()
            slot = home.slot_of(asked[0][0])
            return home.courier.check(asked, self._taken_together, slot)

        return take_all

    def _taken_together(
        self,
        asked: Asked,
        admitted: bool,  # noqa: FBT001
        now_us: int,
        begun: Begun | None,
        answers: Sequence[int],
    ) -> TakenTogether:
        *_, states = _states_of(asked, admitted, now_us, begun, answers)
        keys = [key for key, _ in asked]
        if admitted:
            self._denials.drop(keys)
        else:
            prices = prices_asked(asked)
            found = dict(zip(prices, states, strict=True))
            self._denials.note(prices, found, now_us, begun)
        specs = [spec for _, spec in asked]
        return *take_together(specs, states, now_us), now_us, keys

    def _home(self) -> _Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        return self._moved_in(loop) if home is None else home

    def _moved_in(self, loop: asyncio.AbstractEventLoop) -> _Home:
        for other in [each for each in list(self._homes) if each.is_closed()]:
            # Nothing can be closed any more there. Other threads look, too.
            self._homes.pop(other, None)
        client = _checked_client(self._make_client())
        line: Callable[[], Line]
        if isinstance(client, RedisCluster):
            line, lines = partial(ClusterLine, client), _CLUSTER_LINES
        else:
            line, lines = partial(ConnectionLine, client.connection_pool), _LINES
        courier = Courier(
            line,
            lines=lines,
            timeout=self._timeout,
            clock_us=self._clock_us,
            begin=self._denials.begin,
        )
        home = self._homes[loop] = _Home(
            client, self._is_ours, isinstance(client, RedisCluster), courier
        )
        return home


def _maker(client: Any) -> tuple[Callable[[], _Client], bool]:
    """Return what gives a client for an event loop, and whether it is ours to close."""
    if isinstance(client, str):
        make: Callable[[], Any] = partial(cast("Any", Redis).from_url, client)
        try:
            _ = make().connection_pool.make_connection()
        # Also an option that nobody knows, or that redis-py does not like.
        except (ValueError, TypeError, RedisError) as error:
            url = re.sub("//.*@", "//…@", client)  # without a password
            url = re.sub("password=[^&]*", "password=…", url)
            msg = f"{url!r} is no URL: {error}. Write 'redis://localhost:6379/0'"
            raise ConfigurationError(msg) from None
        return make, True
    if isinstance(client, (Redis, RedisCluster)):
        return lambda: client, False
    if callable(client) and not isinstance(client, type):
        return cast("Callable[[], _Client]", client), True
    raise _no_client(client)


def _checked_client(client: object) -> _Client:
    """Return *client* if it is one, as a function may give anything."""
    if isinstance(client, (Redis, RedisCluster)):
        return client
    if inspect.iscoroutine(client):
        client.close()
    raise _no_client(client)


def _no_client(client: object) -> ConfigurationError:
    kind = client if isinstance(client, type) else type(client)
    return ConfigurationError(
        f"An object of {kind.__module__}.{kind.__qualname__} is no client of "
        "redis.asyncio. Write RedisStore('redis://localhost:6379/0'), or "
        "RedisStore(Redis(…)) with 'from redis.asyncio import Redis'"
    )


def _is_hopeless(pair: Pair, price: int) -> bool:
    """Tell whether there can never be room for *price*, so that none is asked for."""
    _, kernel = pair
    if isinstance(kernel, Bucket) and kernel.delay:  # several may have turns
        return price * kernel.token > kernel.full or not kernel.capacity
    return price > kernel.capacity or not kernel.capacity


def _is_too_dear(charge: Charge) -> bool:
    """Tell whether *charge* has no turn, though others of its key may wait longer."""
    return charge.max_delay > 0 and charge.cost > charge.quota.burst


def _asked(prices: Mapping[Pair, int]) -> Asked:
    return [(key, spec_of(kernel, price)) for (key, kernel), price in prices.items()]


def _states_of(  # as `Finish` has it
    asked: Asked,
    admitted: bool,  # noqa: FBT001
    now_us: int,
    begun: Begun | None,
    answers: Sequence[int],
) -> tuple[bool, int, Begun | None, list[State]]:
    states, at = list[State](), 0
    for _, spec in asked:
        states.append(spec.state(now_us, answers[at : at + spec.width]))
        at += spec.width
    return admitted, now_us, begun, states


def _spec_of_charge(charge: Charge) -> Spec:
    return spec_of(counter_of(charge), charge.cost)


def _reader_of(states: Mapping[Pair, State]) -> Reader:
    """Return what tells the state of each key."""
    return lambda key, kernel: states.get((key, kernel))


def _reader_of_one(state: State | None) -> Reader:
    """Return what tells the same state of any key."""

    def read(_key: str, _kernel: AnyKernel) -> State | None:
        return state

    return read


def _slots(keys: Sequence[str], slot_of: Callable[[str], int]) -> list[list[int]]:
    """Return the indices of *keys*, those of one slot together."""
    groups: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(slot_of(key), []).append(index)
    return list(groups.values())


def _groups(
    charges: Sequence[Charge], slot_of: Callable[[str], int]
) -> list[list[int]]:
    """
    Return the indices of *charges* that can be decided together.

    They are of one slot, and no key is held to two quotas among them.
    """
    groups: list[tuple[int, dict[str, AnyKernel], list[int]]] = []
    for index, charge in enumerate(charges):
        key, kernel = charge.key, counter_of(charge)
        slot = slot_of(key)
        for of_slot, held, members in groups:
            if of_slot == slot and held.setdefault(key, kernel) is kernel:
                members.append(index)
                break
        else:
            groups.append((slot, {key: kernel}, [index]))
    return [members for *_, members in groups]
