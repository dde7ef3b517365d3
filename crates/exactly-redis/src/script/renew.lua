local token, lease, lost_keep, channel, hint = unpack(ARGV, 1, 5)
local owner, on_lost, expires_at = unpack(redis.call('HMGET', KEYS[1], 'token', 'on_lost', 'expires_at'))
if owner ~= token or expires_at then
  return 0
end
grant(lease, on_lost, lost_keep, now_ms())
if channel then
  announce(channel, hint)
end
return 1
