-- The trail under KEYS[1] is a stream: the number of an entry is the first part of its id. The last id that was given
-- out is remembered with the stream, so no number is used twice, whatever was deleted.
local call, actor, action, detail, keep, dropped_max = unpack(ARGV, 1, 6)
local now = now_ms()
local last = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = tonumber(string.match(info[i + 1], '^%d+'))
    end
  end
end
redis.call('XADD', KEYS[1], integer(last + 1) .. '-0',
  'noted_at', integer(now), 'call', call, 'actor', actor, 'action', action, 'detail', detail)

local old = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', dropped_max)) do
  -- The first field is when it was noted.
  if tonumber(entry[2][2]) + tonumber(keep) > now then
    break
  end
  table.insert(old, entry[1])
end
if #old > 0 then
  redis.call('XDEL', KEYS[1], unpack(old))
end
return 1
