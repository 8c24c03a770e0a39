"""Simulation of Windows for a process of a test: modules and functions that exist only on Unix are missing.

The standard library keeps its own: what it has imported before stays as it is.
"""

import asyncio
import concurrent.futures
import ctypes
import getpass
import importlib.abc
import logging.handlers
import multiprocessing.connection
import os
import select
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import uuid

LOADED = (asyncio, concurrent.futures, ctypes, getpass, logging.handlers, multiprocessing.connection)
LOADED += (shutil, sqlite3, ssl, subprocess, tempfile, uuid)
"""Modules of the standard library that use functions of Unix, imported before they are removed."""
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
OF_OS = (
    "O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE P_PIDFD RTLD_LAZY SEEK_DATA "
    "SEEK_HOLE WNOHANG WNOWAIT chown confstr copy_file_range fchdir fchmod fchown fdatasync fork forkpty getegid "
    "geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getresuid getsid getuid getxattr killpg lchown "
    "lockf memfd_create mkfifo mknod nice openpty pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn pread "
    "preadv pwrite register_at_fork sched_getaffinity sched_yield sendfile setgid setgroups setpgid setpriority setsid "
    "setuid setxattr sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait waitid wait3 wait4 WIFSTOPPED"
)
OF_SIGNAL = (
    "ITIMER_REAL SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 "
    "SIGUSR2 SIGWINCH SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm pthread_kill pthread_sigmask setitimer siginterrupt "
    "sigpending sigtimedwait sigwait"
)


class _Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in MODULES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def remove():
    """Remove the modules and functions from this process."""
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing())
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL), (select, "epoll poll")):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
