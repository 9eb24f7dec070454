"""The kernel of Python. The interpreter starts it once, as the zygote: it loads what takes long, and forks a kernel for each
context. Descriptor 3 is the zygote's socket; a kernel gets one of its own, with its stdout and stderr.

A kernel reads cells, one line of JSON each, and answers in frames, "KIND LENGTH\\n" and as many bytes: k it is there, r a result, e an
error, d the cell has ended. Whatever is written to stdout and stderr, by whichever process, goes through pipes of their own."""
import base64
import ctypes
import functools
import gc
import importlib
import io
import json
import linecache
import math
import os
import signal
import socket
import subprocess
import sys
import types

os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")


def module_of(name, **values):
    module = types.ModuleType(name)
    vars(module).update(values)
    return module


# What completes and edits lines at a terminal is large, and there is no terminal.
NO_TERMINAL = {
    "jedi": None,
    "IPython.terminal.embed": module_of("IPython.terminal.embed", embed=None),
    "IPython.core.latex_symbols": module_of("IPython.core.latex_symbols", latex_symbols={}, reverse_latex_symbol={}),
}


class Later(types.ModuleType):
    """Stands for a module in those that import it without need, and loads it when they use it."""

    def __getattr__(self, name):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def called_later(module, *names):
    """The same for what is imported out of it: functions that load it when they are called."""

    def one(name):
        return lambda *values, **named: getattr(importlib.import_module(module), name)(*values, **named)

    return module_of(module, **{name: one(name) for name in names})


LATER = {name: Later(name) for name in (
    "cProfile", "ipaddress", "matplotlib.dviread", "numpy.fft", "numpy.polynomial", "pexpect", "pydoc", "tarfile", "uuid", "zipfile")}
LATER |= {
    "logging.config": called_later("logging.config", "dictConfig"),
    "urllib.request": called_later("urllib.request", "Request", "urlopen"),
}
sys.modules.update(NO_TERMINAL | LATER)

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.ultratb import AutoFormattedTB
from traitlets import Type
from traitlets.config import Config

import charts

FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
    "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
    "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}


class Wire:
    """The socket to the interpreter. An interrupt never cuts a frame into pieces: it waits for its end."""

    socket = None
    running = sending = interrupted = False

    def send(self, kind, body=b""):
        self.sending = True
        try:
            self.socket.sendall(b"%s %d\n" % (kind, len(body)) + body)
        finally:
            self.sending = False
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def on_interrupt(self, number, frame):
        if not self.running:
            return
        if self.sending:
            self.interrupted = True
            return
        raise KeyboardInterrupt


wire = Wire()


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):
            pass


# ---- what is shown ----


def as_json(value):
    """Numbers of numpy, times, and keys that are no strings, as JSON has them. Raises what it cannot show."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(as_json(key)): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item) for item in value]
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat()
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        if type(value).__name__ == "datetime64":
            return str(value)
        return as_json(value.tolist())
    raise TypeError(f"{type(value).__name__} is not JSON")


def try_json(value):
    try:
        json.dumps(value, allow_nan=False)
        if all(isinstance(key, str) for key in value) or isinstance(value, list):
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return as_json(value)
    except (TypeError, ValueError, RecursionError):
        return None


def table_of(value):
    """The columns of a DataFrame. Nothing is imported for it: who has one has pandas."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame):
        return None
    columns = {}
    for name, column in value.to_dict(orient="list").items():
        columns[name if isinstance(name, str) else str(name)] = [as_json_or_text(item) for item in column]
    return columns


def as_json_or_text(item):
    try:
        return as_json(item)
    except (TypeError, ValueError, RecursionError):
        return str(item)


def figure_of(value):
    figures = sys.modules.get("matplotlib.figure")
    return value if figures is not None and isinstance(value, figures.Figure) else None


class Formatter(DisplayFormatter):
    """All that IPython knows, and two more: tables and charts as data."""

    def format(self, value, include=None, exclude=None):
        data, metadata = super().format(value, include=include, exclude=exclude)
        try:
            table, figure = table_of(value), figure_of(value)
            if table is not None:
                data["e2b/data"] = table
            if figure is not None and "image/png" in data:
                data["e2b/chart"] = charts.chart_of(figure)
        except Exception as error:  # what is shown otherwise is still good
            print(f"quicksand: no data of this {type(value).__name__}: {error!r}", file=sys.stderr)
        return data, metadata


def unquoted(text):
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def field_of(name, value):
    if isinstance(value, (bytes, bytearray)):
        value = base64.b64encode(value).decode()
    if name == "text" and isinstance(value, str):
        return unquoted(value)
    if name in ("png", "jpeg", "pdf") and isinstance(value, str):
        return value.replace("\n", "")
    return value


def send_line(kind, line):
    try:
        text = json.dumps(line, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(as_json_or_text(line), ensure_ascii=False)
    flush()
    wire.send(kind, text.encode("utf-8", "replace"))


def send_result(data, main):
    line, extra = {"type": "result", "is_main_result": main}, {}
    for mime, value in data.items():
        if value is None:
            continue
        name = FIELDS.get(mime)
        if name:
            line[name] = field_of(name, value)
        else:
            extra[mime] = field_of(mime, value)
    line["extra"] = extra
    send_line(b"r", line)


class Hook(DisplayHook):
    """The value of a cell's last expression."""

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        send_result(format_dict, True)


class Publisher(DisplayPublisher):
    """display(), and figures."""

    def publish(self, data, metadata=None, source=None, **others):
        send_result(data, False)

    def clear_output(self, wait=False):
        pass


# ---- the shell ----


class Traceback(AutoFormattedTB):
    """Frames that are left out are not looked at: the shell's own one is in a file whose tree takes five megabytes."""

    def get_records(self, trace, lines, left_out):
        while trace and left_out > 0:
            trace, left_out = trace.tb_next, left_out - 1
        return super().get_records(trace, lines, 0) if trace else []


class Shell(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)
        for kind in (dict, list):
            self.display_formatter.formatters["application/json"].for_type(kind, try_json)

    def init_traceback_handlers(self, custom_exceptions):
        super().init_traceback_handlers(custom_exceptions)
        usual = self.InteractiveTB
        self.InteractiveTB = Traceback(mode=usual.mode, color_scheme="NoColor", tb_offset=usual.tb_offset, check_cache=usual.check_cache,
                                       debugger_cls=usual.debugger_cls, parent=self)

    def enable_gui(self, gui=None):
        pass

    def ask_exit(self):
        flush()
        os._exit(0)

    def system(self, command):
        """A command writes where the cell writes, without a terminal in between."""
        flush()
        shell = os.environ.get("SHELL") or "/bin/bash"
        self.user_ns["_exit_code"] = subprocess.call(self.var_expand(command, depth=1), shell=True, executable=shell)

    def _showtraceback(self, kind, value, lines):
        try:
            text = str(value)
        except Exception:
            text = "<the exception cannot be shown>"
        send_line(b"e", {"type": "error", "name": getattr(kind, "__name__", str(kind)), "value": text, "traceback": "\n".join(lines)})


def no_input(*prompt):
    raise StdinNotImplementedError("raw_input was called, but this frontend does not support input requests.")


def make_shell():
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.PlainTextFormatter.max_seq_length = 0
    return Shell.instance(config=config)


def show_pictures():
    """show() of a picture shows it here, and so does save() to a file."""
    try:
        from PIL import Image
    except ImportError:
        return
    from IPython.display import display

    save = Image.Image.save

    def save_and_show(self, target, *others, **named):
        save(self, target, *others, **named)
        if isinstance(target, str) and wire.running:
            display(self)

    Image.Image.show = lambda self, *others, **named: display(self)
    Image.Image.save = save_and_show


def load_plots(shell):
    """Loads the libraries, and tells figures to be shown by us."""
    try:
        import pyparsing  # noqa: F401

        linecache.clearcache()  # its own source, line by line; what comes next takes the place
        import numpy  # noqa: F401
        import pandas  # noqa: F401
        import matplotlib.pyplot  # noqa: F401
        from matplotlib import font_manager, rcParams
        from matplotlib_inline import backend_inline, config
    except ImportError as error:
        print(f"quicksand: {error}", file=sys.stderr)
        return
    for cache in gc.get_objects():
        if isinstance(cache, functools._lru_cache_wrapper) and cache.__module__ == "matplotlib.artist":
            cache.cache_clear()  # was for the documentation of its classes
    settings = config.InlineBackend.instance(parent=shell)
    settings.shell = shell
    backend_inline.configure_inline_support(shell, "module://matplotlib_inline.backend_inline")
    backend_inline.set_matplotlib_formats("png")
    if any(font.name == "Noto Sans CJK JP" for font in font_manager.fontManager.ttflist):
        rcParams["font.family"] = ["sans-serif", "Noto Sans CJK JP"]


WARM_CELLS = (
    "1 + 1", "1 / 0", "!true",
    "import pandas; pandas.DataFrame({'a': [1]})",
    "import matplotlib.pyplot as plot; plot.plot([0, 1]); plot.show()",
)


class Nobody:
    def sendall(self, text):
        pass


def warm(shell):
    """Runs one cell of each kind for nobody, so that the first of a kernel is as quick as the second."""
    wire.socket = Nobody()
    for cell in WARM_CELLS:
        shell.run_cell(cell, store_history=False)
    shell.reset(new_session=True)


# ---- a kernel ----


class Output(io.TextIOWrapper):
    """Written through at once, so that what the cell writes and what its commands write come in their order."""

    def write(self, text):
        count = super().write(text)
        self.flush()
        return count


def open_output(number, name):
    stream = Output(open(number, "wb", closefd=False), encoding="utf-8", errors="backslashreplace")
    stream.mode = "w"
    stream._name = name
    return stream


def become_kernel(cwd, fds):
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, wire.on_interrupt)
    os.dup2(fds[1], 1)
    os.dup2(fds[2], 2)
    wire.socket = socket.socket(fileno=fds[0])
    os.close(fds[1])
    os.close(fds[2])
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = open_output(1, "<stdout>"), open_output(2, "<stderr>")
    os.chdir(cwd)
    os.environ["PWD"] = cwd
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


class Variables:
    """Of one cell: set before, put back afterwards."""

    def __init__(self, values):
        self.values = {name: value for name, value in (values or {}).items() if isinstance(value, str) and name and "=" not in name and "\0" not in name + value}

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.values}
        os.environ.update(self.values)

    def __exit__(self, *error):
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_cell(shell, request):
    Variables(request.get("globals")).__enter__()
    with Variables(request.get("envs")):
        wire.running = True
        try:
            shell.run_cell(request.get("code", ""), store_history=True)
        except KeyboardInterrupt:
            shell.showtraceback()
        finally:
            wire.running = False
    flush()


def serve(shell):
    cells = wire.socket.makefile("rb")
    wire.send(b"k")
    for line in cells:
        try:
            run_cell(shell, json.loads(line))
        except KeyboardInterrupt:
            pass
        wire.interrupted = False
        wire.send(b"d")


# ---- the zygote ----


def tell_ends(control):
    """Ends of kernels, as waitpid() has them."""

    def on_child(number, frame):
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                body = b"%d %d" % (pid, status)
                control.send(b"w %d\n" % len(body) + body)
        except (ChildProcessError, OSError):
            pass

    signal.signal(signal.SIGCHLD, on_child)


def fork_kernel(control, shell, cwd, fds):
    # Its end must not be told before its begin.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            become_kernel(cwd, fds)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            serve(shell)
        finally:
            flush()
            os._exit(0)
    for fd in fds:
        os.close(fd)
    body = b"%d" % pid
    control.send(b"p %d\n" % len(body) + body)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def load():
    """The shell, with all that kernels begin with."""
    shell = make_shell()
    load_plots(shell)
    show_pictures()
    import builtins

    builtins.input = no_input
    for name, module in (NO_TERMINAL | LATER).items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    sys.path[0] = ""
    return shell


def main():
    control = socket.socket(fileno=3)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shell = load()
    warm(shell)
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)
    tell_ends(control)
    control.send(b"l 0\n")
    while True:
        message, fds, _, _ = socket.recv_fds(control, 4096, 3)
        if not message:
            os._exit(0)
        fork_kernel(control, shell, message.rstrip(b"\0").decode(errors="surrogateescape"), fds)


if __name__ == "__main__":
    main()
