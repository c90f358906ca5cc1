# Redis.

packages_redis() { command -v redis-server >/dev/null || echo redis-server; }

redis_port() { sed -n 's/^port //p' "$folder/redis.conf" 2>/dev/null || true; }
redis_answers() { redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null | grep -q PONG; }

start_redis() {
  local port
  port=$(redis_port)
  port=${port:-$(free_port)}
  if ! runs_redis; then
    unprivileged mkdir -p "$folder/redis"
    unprivileged tee "$folder/redis.conf" >/dev/null <<CONF
bind 127.0.0.1
port $port
dir $folder/redis
daemonize yes
pidfile $folder/redis.pid
logfile $folder/redis.log
save ""
appendonly $([ "${MAINSPRING_SERVICES_FSYNC:-off}" = on ] && echo yes || echo no)
appendfsync everysec
CONF
    unprivileged redis-server "$folder/redis.conf" >/dev/null
  fi
  wait_until redis_answers "$port" # A server that was killed reads its log before it answers.
}

stop_redis() { end "$folder/redis.pid"; }
runs_redis() { runs "$folder/redis.pid"; }
urls_redis() { echo "MAINSPRING_TEST_REDIS=redis://127.0.0.1:$(redis_port)"; }
