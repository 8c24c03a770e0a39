#!/bin/sh
# Every command of dev_env with the exit codes that it has, as a person's script meets them.
# ROOT is an empty folder, PYTHON runs divebook; with BOX, the name of an image, containers are made as well.
set -u
export DEV_ENV_ROOT="$ROOT"
cd "$ROOT" || exit 99
count=0

dev_env() { "$PYTHON" -c 'from divebook.cli.dev_env import main; main()' "$@" </dev/null; }

expect() { # CODE WORDS...
    wanted=$1
    shift
    printed=$(dev_env "$@" 2>"$ROOT/told")
    code=$?
    count=$((count + 1))
    if [ "$code" -ne "$wanted" ]; then
        echo "dev_env $*: exit code $code, not $wanted" >&2
        cat "$ROOT/told" >&2
        exit 1
    fi
    if [ "$code" -ne 0 ] && [ -n "$printed" ] && [ "$1" != execute ]; then
        echo "dev_env $*: failed, and printed $printed" >&2
        exit 1
    fi
}

says() { # TEXT: what the last command has printed
    [ "$printed" = "$1" ] || {
        echo "printed '$printed', not '$1'" >&2
        exit 1
    }
}

echo '{"extends": "native", "native": {"env": {"A": "1"}, "init": ["echo $ENV_NAME > made"]}}' >own.json
echo '{"extends": "native", "native": {"init": ["exit 7"]}}' >fails.json

expect 0 --version
expect 0 --help
expect 1 bogus
expect 1 create
expect 0 init
says "$ROOT"
expect 0 doctor
expect 0 gc
says "[]"
expect 0 events
expect 0 template list
expect 0 template list python
expect 0 template validate own.json
expect 0 template create own own.json
says "Template 'own' created"
expect 1 template create own own.json
expect 0 template create --force own own.json
expect 0 template create fails fails.json
expect 8 template create native own.json
expect 1 template create bad nothing.json
expect 0 template show own --resolved
expect 3 template show nothing
expect 0 profile list
expect 0 profile show minimal
expect 1 profile show nothing

expect 3 create app nothing
expect 1 create ../app own
expect 1 create app own nothing
expect 4 create app own --set resource_limits.cpu=100000
expect 6 create app fails
expect 0 create app own --dry-run
expect 0 create app own
says "$ROOT/.dev_env_state/app"
expect 1 create app own
expect 0 create app own --exist-ok
expect 6 create slow own --timeout 0.3 --set 'native.init=["exec tail -f /dev/null"]'
expect 0 --verbose --no-color create short own --expires 0 --install-tools --fallback
expect 0 gc --dry-run
expect 0 gc
expect 2 destroy short

expect 0 execute app 'cat made; echo $A'
says "app
1"
expect 6 execute app 'exit 3'
expect 3 execute --passthrough app 'exit 3'
expect 122 execute --passthrough nothing true
expect 6 execute --timeout 0.2 app 'exec tail -f /dev/null'
expect 2 execute nothing true
expect 0 execute app -- printf %s 'a b'
says 'a b'
expect 0 execute --json app true
expect 0 execute --tty app 'test -t 0 && test -t 1'
expect 1 execute --user nobody app true
expect 0 shell app

expect 0 list
expect 0 list running
expect 1 list sleeping
expect 8 list all other
expect 0 inspect app
expect 2 inspect nothing
expect 0 events app
expect 0 execute --detach app 'echo begun; exec tail -f /dev/null'
job=$printed
expect 0 job list app
expect 2 job list nothing
expect 0 job output app "$job"
expect 0 job kill app "$job"
says "Job '$job' killed"
expect 1 job kill app nothing
expect 0 cp own.json app:copied
says app:copied
expect 0 cp app:copied "$ROOT/back"
expect 1 cp app:nothing "$ROOT/back2"
expect 2 cp nothing:f "$ROOT/back2"
cmp own.json back || exit 1
expect 0 resources app
expect 2 resources nothing
expect 0 logs app
expect 2 logs nothing

expect 0 stop app
expect 6 execute --no-start app true
expect 0 start app
expect 0 restart app
expect 2 stop nothing
expect 2 start nothing

expect 0 execute app 'echo one > f'
expect 0 save app first
says "$ROOT/.dev_env_state/app/checkpoints/first/checkpoint.json"
expect 1 save app first
expect 0 save --overwrite app first
expect 2 save nothing first
expect 0 execute app 'echo two > f'
expect 0 restore app first
says "Environment 'app' restored to 'first'"
expect 0 execute app 'cat f'
says one
expect 7 restore app nothing
expect 2 restore nothing nothing
expect 0 checkpoint list app
expect 0 checkpoint show app first
expect 7 checkpoint show app nothing
expect 0 checkpoint delete app first
expect 0 save --export app kept
expect 0 destroy --keep-checkpoints app
expect 0 create app own
expect 0 restore app kept
expect 7 checkpoint delete app first

# Two tenants do not see each other.
export DEV_ENV_TENANT=other
for words in "execute app true" "destroy app" "save app first" "restore app first" "resources app" "inspect app" \
    "start app" "stop app" "restart app" "logs app" "checkpoint list app" "shell app" "cp app:f f" "job list app" \
    "execute --detach app true"; do
    # shellcheck disable=SC2086 # several words
    expect 8 $words
done
expect 0 list
says "[]"
expect 0 create theirs own
unset DEV_ENV_TENANT
expect 8 execute theirs true
expect 0 --tenant other destroy --all
says "Environment 'theirs' destroyed"
expect 1 destroy

DOCKER_HOST="unix://$ROOT/nobody.sock"
export DOCKER_HOST
expect 5 create box python-docker
unset DOCKER_HOST

if [ -n "${BOX:-}" ]; then
    expect 1 create box python-docker --set docker.image=divebook-test:nothing --pull never
    expect 0 create box python-docker minimal --set "docker.image=$BOX" --set docker.network=none
    expect 8 create box2 python-docker --set "docker.image=$BOX" --set 'docker.volumes=["/etc:/a"]'
    expect 0 execute box 'echo one > /tmp/f; pwd'
    says /workspace
    expect 0 execute --user 1234 box 'id -u'
    says 1234
    expect 0 execute --tty box 'test -t 0'
    expect 0 cp own.json box:/tmp/own
    expect 0 cp box:/tmp/own back
    expect 0 save --export box first
    expect 0 execute box 'rm /tmp/f'
    expect 0 restore box first
    expect 0 execute box 'cat /tmp/f'
    says one
    expect 4 execute box 'x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done'
    expect 0 resources box
    expect 0 stop box
    expect 0 list stopped
    expect 0 start box
    expect 0 destroy box
fi

expect 0 template delete own
expect 3 template delete own
expect 0 destroy app
says "Environment 'app' destroyed"
expect 2 destroy app
expect 0 list
says "[]"
echo "$count commands did and said what they should"
