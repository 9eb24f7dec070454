#!/usr/bin/env python3
"""Records docs/images/first-minutes.svg: a real run of the program, as README.md tells it.

    tools/first_minutes.py [OUT.svg]      as root, after `make` and a base template

The commands below run one after the other in terminals of their own, inside tests/harness/lab.sh, so that nothing is
left behind. What they print is drawn as it came, after the time it took; only the API key is cut short. The picture is
text and CSS: it moves once, and stands still where movement is not wanted.
"""
import html
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMNS = 96
SERVE = 'make run'
SERVED = b'engine of this server'  # the last words of its greeting
COMMANDS = [
    "quicksand run -- python3 -c 'print(6 * 7)'",
    'quicksand up --key demo',
    "quicksand exec key:demo -- sh -c 'sudo id; echo kept >note'",
    'quicksand up --key demo',
    'quicksand exec key:demo -- cat note',
    'quicksand ls',
    'quicksand rm key:demo',
]

FONT = 13
CHAR, LINE = FONT * 0.6, FONT * 1.4
PAD, BAR, GAP = 14, 24, 10
TYPE_S, THINK_S = 0.035, 0.7  # a key, and before a command
STYLE = """
text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#c9d1d9}
.b{fill:#0d1117}.t{fill:#8b949e}.p{fill:#7ee787}.k{fill:#f0f6fc}.w{fill:#161b22}
.o{opacity:0;animation:s .01s forwards}@keyframes s{to{opacity:1}}
.c{animation:m linear forwards}@keyframes m{to{transform:translateX(%dpx)}}
@media (prefers-reduced-motion:reduce){.o{animation:none;opacity:1}.c{display:none}}
"""


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, command, env):
        self.out, self.began = b'', time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe('/bin/sh', ['/bin/sh', '-c', f'stty cols {COLUMNS} rows 40; exec {command}'], env)

    def read(self, until=None, limit_s=120):
        """Until these words, or its end: the text, and after how long its last part came."""
        took = 0.0
        while until is None or until not in self.out:
            if time.monotonic() - self.began > limit_s:
                sys.exit(f'not within {limit_s} s:\n{self.out.decode(errors="replace")}')
            if not select.select([self.fd], [], [], 0.2)[0]:
                continue
            try:
                piece = os.read(self.fd, 65536)
            except OSError:  # its end, as a terminal tells it
                break
            if not piece:
                break
            self.out += piece
            took = time.monotonic() - self.began
        return self.out.decode().replace('\r', ''), took

    def end(self):
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)


def exports(text):
    return dict(re.findall(r'export (E2B_\w+)=(\S+)', text))


def masked(text):
    return re.sub(r'(e2b_[0-9a-f]{6})[0-9a-f]{34}', r'\1…', text)


def record():
    """[(command, lines, seconds)] of the server's terminal, and of the user's."""
    with tempfile.TemporaryDirectory() as home:
        env = dict(os.environ, HOME=home, QUICKSAND_DATA=f'{home}/data', TERM='xterm-256color', NO_COLOR='1')
        os.chmod(home, 0o755)
        server = Terminal(SERVE, env)
        text, took = server.read(SERVED)
        env.update(exports(text), PATH=f'{ROOT}/build:{env["PATH"]}')
        text = masked(text)
        greeting = ['…'] + text[text.index('ready http'):].rstrip().split('\n')
        user = []
        for command in COMMANDS:
            out, seconds = Terminal(command, env).read()
            user.append((command, masked(out).rstrip('\n').split('\n'), seconds))
        server.end()
        subprocess.run([f'{ROOT}/build/quicksand', 'down', '--data', f'{home}/data'], env=env, check=True,
                       stdout=subprocess.DEVNULL)
    return [(SERVE, greeting, min(took, 1.5))], user


class Picture:
    """Lines below each other, each with the moment it appears."""

    def __init__(self):
        self.parts, self.y, self.now = [], 0.0, 0.4

    def text(self, x, words, kind, shown=None):
        style = f' style="animation-delay:{shown:.2f}s"' if shown is not None else ''
        classes = ' '.join(name for name in (kind, 'o' if shown is not None else '') if name)
        self.parts.append(f'<text x="{x:g}" y="{self.y:g}" textLength="{len(words) * CHAR:.1f}"'
                          f'{f" class={chr(34)}{classes}{chr(34)}" if classes else ""}{style}>{html.escape(words, False)}</text>')

    def window(self, title, steps):
        top, at = self.y, len(self.parts)
        self.y += BAR + PAD + FONT / 2
        for command, lines, seconds in steps:
            self.command(command)
            self.now += seconds
            for words in lines:
                if words:
                    self.text(PAD, words, '', self.now)
                self.y += LINE
        high = self.y - top + PAD - FONT
        self.parts.insert(at, f'<rect class="b" y="{top:g}" width="100%" height="{high:g}" rx="8"/>'
                              f'<path class="w" d="M0 {top + BAR:g}V{top + 8:g}q0-8 8-8H{self.wide() - 8:g}q8 0 8 8V{top + BAR:g}z"/>'
                              + ''.join(f'<circle cx="{16 + 16 * i}" cy="{top + BAR / 2:g}" r="5" fill="{colour}"/>'
                                        for i, colour in enumerate(('#ff5f57', '#febc2e', '#28c840')))
                              + f'<text class="t" x="68" y="{top + BAR / 2 + 4:g}">{title}</text>')
        self.y = top + high + GAP

    def command(self, command):
        self.text(PAD, '$', 'p', self.now)
        self.now += THINK_S
        x, seconds = PAD + 2 * CHAR, len(command) * TYPE_S
        self.text(x, command, 'k')
        self.parts.append(f'<rect class="b c" x="{x:g}" y="{self.y - FONT:g}" width="{self.wide() - x - 1:g}" height="{LINE:g}" '
                          f'style="animation-delay:{self.now:.2f}s;animation-duration:{seconds * self.wide() / (len(command) * CHAR):.2f}s;'
                          f'animation-timing-function:steps({round(self.wide() / CHAR)})"/>')
        self.now += seconds + 0.15
        self.y += LINE

    @staticmethod
    def wide():
        return round(COLUMNS * CHAR + 2 * PAD)

    def svg(self):
        wide, high = self.wide(), self.y - GAP
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high:g}" width="{wide}" height="{high:g}" role="img" '
                f'aria-label="make run, then quicksand run, up, exec, ls and rm in a second terminal">'
                f'<style>{STYLE % (FONT, wide)}</style>' + '\n'.join(self.parts) + '</svg>\n')


def main():
    out = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f'{ROOT}/docs/images/first-minutes.svg')
    if not os.environ.get('QUICKSAND_LAB'):
        os.execv(f'{ROOT}/tests/harness/lab.sh', ['lab.sh', sys.executable, os.path.abspath(__file__), out])
    server, user = record()
    picture = Picture()
    picture.window('as root, in the repository', server)
    picture.window('another terminal, with the exports above', user)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out, 'w', encoding='utf-8') as file:
        file.write(picture.svg())


main()
