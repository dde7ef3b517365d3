//! Redis's clock is not ours to move, so the records are moved the other way.

use std::time::Duration;

use exactly::clock::millis;
use redis::Script;
use redis::aio::MultiplexedConnection;

/// All records at once, as time does. It looks for keys by itself, which no script of the store may do.
const MOVE: &str = "
    local by = tonumber(ARGV[2])
    local function moved(time)
      return string.format('%.0f', tonumber(time) - by)
    end
    local trail = ARGV[1] .. ':trail'
    for _, entry in ipairs(redis.call('XRANGE', trail, '-', '+')) do
      local fields = entry[2]
      fields[2] = moved(fields[2])
      redis.call('XADD', trail .. ':moved', entry[1], unpack(fields))
    end
    if redis.call('EXISTS', trail .. ':moved') == 1 then
      redis.call('RENAME', trail .. ':moved', trail)
    end
    for _, name in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
      for _, field in ipairs({ 'created_at', 'lease_until', 'expires_at' }) do
        local time = name ~= trail and redis.call('HGET', name, field)
        if time and time ~= 'never' then
          redis.call('HSET', name, field, moved(time))
        end
      end
      local left = redis.call('PTTL', name)
      if left >= 0 then
        redis.call('PEXPIRE', name, string.format('%.0f', left - by))
      end
    end";

/// Time passes for the records under `prefix`.
pub(crate) async fn elapse(operator: &mut MultiplexedConnection, prefix: &str, by: Duration) {
    shift(operator, prefix, signed(by)).await;
}

/// The clock is set back for the records under `prefix`.
pub(crate) async fn rewind(operator: &mut MultiplexedConnection, prefix: &str, by: Duration) {
    shift(operator, prefix, -signed(by)).await;
}

fn signed(by: Duration) -> i64 {
    i64::try_from(millis(by)).expect("milliseconds are capped far below")
}

async fn shift(operator: &mut MultiplexedConnection, prefix: &str, ms: i64) {
    let script = Script::new(MOVE);
    let mut request = script.arg(prefix);
    request.arg(ms);
    request.invoke_async::<()>(operator).await.expect("the records move");
}
