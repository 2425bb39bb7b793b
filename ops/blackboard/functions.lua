#!lua name=@LIBRARY@

-- The blackboard's atomic acts. Redis does not roll a script back: every function first reads and checks everything,
-- answers with a refusal if anything does not fit, and only then writes. Values, labels and names are opaque bytes.
--
-- The keys of one request, all under one hash tag:
--   VALUES      hash    field -> value
--   META        hash    field -> "position at version"; the empty field name counts the request's positions
--   LEASES      hash    step id -> "end version"; a lease counts only while the step has that version
--   OPERATIONS  hash    operation id -> position of its event
--   EVENTS      stream  one entry a write, with the id "position-0"; its name is also the channel of the hints
-- Times are milliseconds since the epoch on this server's clock.
--
-- Who may do what. Redis runs a function's commands with the rights of the user who called it, and its access list knows
-- commands and keys, but no fields and roles. Two things close that gap (docs/security.md):
--   Marks  names that no key ever has, such as `<prefix>:role:worker`. A user may access those of its own roles and agents
--          alone, and a function asks the access list about them. A user with all rights passes every question.
--   Seal   a secret that an administrator puts into the library. Keys then have it at the end of their real names, so that
--          only functions find them: a command sent past them meets nothing, whatever keys and commands its user has.

local SEAL = '@SEAL@'

local VALUES, META, LEASES, OPERATIONS, EVENTS = 1, 2, 3, 4, 5
local REQUEST_KEYS = 5
local COUNTER = ''
local ABSENT = '0'
local CHUNK = 4000 -- Lua unpacks less than 8000 values at once

local STEP, RESULT = 'step/', 'result/'
local NAMES = { 'values', 'meta', 'leases', 'operations', 'events' }
local OWNERS = {
  ['request'] = 'producer', ['card'] = 'producer', ['constraint/'] = 'producer',
  ['plan'] = 'orchestrator', ['plan/'] = 'orchestrator', ['answer'] = 'orchestrator',
  ['boundary'] = 'orchestrator', ['absorbed'] = 'orchestrator',
}

local function whole(number) return string.format('%.0f', number) end

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function now_ms() return math.floor(now_us() / 1000) end

local function hmget(key, names)
  if #names == 0 then return {} end
  if #names <= CHUNK then return redis.call('HMGET', key, unpack(names)) end
  local all = {}
  for first = 1, #names, CHUNK do
    for _, value in ipairs(redis.call('HMGET', key, unpack(names, first, math.min(first + CHUNK - 1, #names)))) do
      all[#all + 1] = value
    end
  end
  return all
end

local function may(prefix, mark) return redis.acl_check_cmd('HGET', prefix .. ':' .. mark, '') end

-- Nobody is given this mark by name: who passes has all rights, and is asked nothing more.
local function unlimited(prefix) return may(prefix, 'role:unlimited') end

local function may_be_one_of(prefix, roles)
  for _, role in ipairs(roles) do
    if may(prefix, 'role:' .. role) then return true end
  end
  return false
end

-- The prefix of a request's keys, if they are all of one request; else one whose marks nobody has.
local function prefix_of(named)
  local stem = string.match(named[VALUES], '^(.*:)values$') or ''
  for index, name in ipairs(named) do
    if name ~= stem .. NAMES[index] then return '' end
  end
  return string.match(stem, '^([^{]*):{') or ''
end

-- The first of these fields whose step is of an agent that this user does not work for.
local function of_another_agent(prefix, keys, names)
  for _, name in ipairs(names) do
    local step = string.match(name, '^step/(.*)$') or string.match(name, '^result/(.*)$')
    if step then
      local definition = redis.call('HGET', keys[VALUES], 'plan/' .. step)
      if not definition or not may(prefix, 'agent:' .. cjson.decode(definition).agent) then return name end
    end
  end
end

local function refused(what) return redis.error_reply('NOPERM this user may not ' .. what) end

local function version_of(meta) return meta and string.match(meta, '^%d+ %d+ (.*)$') or ABSENT end

local function lease_of(record)
  local ends, version = string.match(record or '', '^(%d+) (.*)$')
  return tonumber(ends), version
end

-- What every answer begins with: kind, clock, last position, then values, metas and leases (of the steps) of `names`.
local function answer(kind, keys, names, now)
  local steps = {}
  for _, name in ipairs(names) do
    if string.sub(name, 1, #STEP) == STEP then steps[#steps + 1] = string.sub(name, #STEP + 1) end
  end
  local position = tonumber(redis.call('HGET', keys[META], COUNTER) or 0)
  return { kind, now, position, hmget(keys[VALUES], names), hmget(keys[META], names), hmget(keys[LEASES], steps) }
end

local function with(reply, ...)
  for _, item in ipairs({ ... }) do reply[#reply + 1] = item end
  return reply
end

local function read(keys, names) return answer('read', keys, names, now_ms()) end

-- The stored outcome of an operation is its event.
local function replayed(keys, write, position)
  local id = position .. '-0'
  local event = redis.call('XRANGE', keys[EVENTS], id, id)[1][2]
  local names = {}
  for index = 15, #event, 2 do names[#names + 1] = event[index] end
  return with(answer('replayed', keys, write.returning, write.now), tonumber(position), tonumber(event[2]), event[14], names)
end

local function list(args, from, count)
  local items = {}
  for index = from, from + count - 1 do items[#items + 1] = args[index] end
  return items, from + count
end

-- The arguments as `ops.blackboard.redis` packs them.
local function unpacked(args)
  local write = {
    operation = args[1], role = args[2], writer = args[3], cause = args[4], labels = args[5], suffix = args[6],
    heard = tonumber(args[7]), calm = tonumber(args[8]), grace = tonumber(args[9]),
    expire = tonumber(args[10]), lease_step = args[11], lease_ms = tonumber(args[12]),
    after_field = args[13], after_ms = tonumber(args[14]), now = now_ms(), expected = {},
  }
  local next = 19
  write.expect, next = list(args, next, tonumber(args[15]))
  write.versions, next = list(args, next, tonumber(args[15]))
  write.put, next = list(args, next, tonumber(args[16]))
  write.values, next = list(args, next, tonumber(args[16]))
  write.unheld, next = list(args, next, tonumber(args[17]))
  write.returning, next = list(args, next, tonumber(args[18]))
  for _, name in ipairs(write.expect) do
    write.expected[name] = true
    write.fenced = write.fenced or string.sub(name, 1, #STEP) == STEP
  end
  return write
end

local function conflict(keys, write)
  for index, meta in ipairs(hmget(keys[META], write.expect)) do
    local actual = version_of(meta)
    if actual ~= write.versions[index] then
      return with(answer('conflict', keys, write.returning, write.now), write.expect[index], write.versions[index], actual)
    end
  end
end

local function permitted(write, name, absent)
  local namespace = string.match(name, '^[^/]*/') or name
  if namespace == STEP then
    return write.role == 'orchestrator' or (write.role == 'worker' and write.expected[name])
  elseif namespace == RESULT then
    local fenced = write.expected[STEP .. string.sub(name, #RESULT + 1)]
    return fenced and (write.role == 'worker' or (write.role == 'orchestrator' and absent))
  elseif namespace == 'session' then
    return write.role == 'producer' and write.expected[name]
  elseif namespace == 'field/' then
    return write.role == 'orchestrator' or (write.role == 'worker' and write.fenced) or (write.role == 'producer' and absent)
  elseif namespace == 'status' then
    return write.role == 'orchestrator' or (write.role == 'producer' and absent)
  elseif write.role ~= OWNERS[namespace] then
    return false
  elseif write.role == 'producer' then
    return absent
  end
  return true
end

-- After an outage as long as a lease nobody takes over for one lease, so that holders renew first. `heard` is the time of
-- the last answer that the caller got from this server: also a call that was sent before the outage and is read after it is caught.
local function calm_until(write)
  if write.heard > 0 and write.now - write.heard >= write.grace then
    return math.max(write.calm, write.now + write.grace)
  end
  return write.calm
end

local function held(keys, write)
  if #write.unheld > 0 then
    local calm, fields = calm_until(write), {}
    for index, step in ipairs(write.unheld) do fields[index] = STEP .. step end
    local metas = hmget(keys[META], fields)
    for index, record in ipairs(hmget(keys[LEASES], write.unheld)) do
      local ends, version = lease_of(record)
      if ends and version == version_of(metas[index]) and write.now < math.max(ends, calm) then
        return with(answer('held', keys, write.returning, write.now), write.unheld[index], math.max(ends, calm))
      end
    end
  end
  if write.after_field ~= '' then
    local at = string.match(redis.call('HGET', keys[META], write.after_field) or '', '^%d+ (%d+) ')
    local open = (tonumber(at) or write.now) + write.after_ms
    if write.now < open then return with(answer('held', keys, write.returning, write.now), write.after_field, open) end
  end
end

local function set_expiry(keys, write, before)
  if write.expire == 0 then
    for index = 1, REQUEST_KEYS do redis.call('PERSIST', keys[index]) end
    return
  end
  local at = write.expire > 0 and write.now + write.expire * 1000 or before
  if at > 0 then
    for index = 1, REQUEST_KEYS do redis.call('PEXPIREAT', keys[index], whole(at)) end
  end
end

-- What listeners are told: the position, and which fields were put (a star where they are many), after a NUL each.
local function hint(position, names)
  if #names > 16 then return position .. '\0*' end
  return #names == 0 and position or position .. '\0' .. table.concat(names, '\0')
end

local function store(keys, named, write, metas)
  local position = whole(tonumber(redis.call('HGET', keys[META], COUNTER) or 0) + 1)
  local at, expiry = whole(write.now), redis.call('PEXPIRETIME', keys[META])
  local counts, values, records, event = {}, {}, { COUNTER, position }, {}
  for index, name in ipairs(write.put) do
    counts[index] = whole(tonumber(string.match(version_of(metas[index]), '^%d+')) + 1)
    local version = counts[index] .. '.' .. write.suffix
    values[#values + 1], values[#values + 2] = name, write.values[index]
    records[#records + 1], records[#records + 2] = name, position .. ' ' .. at .. ' ' .. version
    if name == STEP .. write.lease_step then write.lease_version = version end
  end
  local told = table.concat(counts, ' ')
  event = {
    'at', at, 'role', write.role, 'writer', write.writer, 'operation', write.operation,
    'cause', write.cause, 'labels', write.labels, 'counts', told, unpack(values),
  }
  -- First, because it is the one that could be refused: a stream that is ahead of the counter.
  redis.call('XADD', keys[EVENTS], position .. '-0', unpack(event))
  if #values > 0 then redis.call('HSET', keys[VALUES], unpack(values)) end
  redis.call('HSET', keys[META], unpack(records))
  redis.call('HSET', keys[OPERATIONS], write.operation, position)
  if write.lease_version then
    redis.call('HSET', keys[LEASES], write.lease_step, whole(write.now + write.lease_ms) .. ' ' .. write.lease_version)
  end
  set_expiry(keys, write, expiry)
  redis.call('PUBLISH', named[EVENTS], hint(position, write.put))
  return with(answer('written', keys, write.returning, write.now), tonumber(position), write.now, told)
end

-- Why this user may not write this, if its access list says so.
local function refusal_of(keys, named, write)
  local prefix = prefix_of(named)
  if unlimited(prefix) then return end
  if not may(prefix, 'role:' .. write.role) then return refused('write as ' .. write.role) end
  if write.role == 'orchestrator' then return end
  -- A producer may say it of a session's record, which is no request and never becomes one.
  local session = write.role == 'producer' and #write.put == 1 and write.put[1] == 'session' and write.expire > 0
    and not redis.call('HGET', keys[VALUES], 'request')
  if write.expire >= 0 and not session then return refused('say when a request expires') end
  local other = write.role == 'worker' and of_another_agent(prefix, keys, write.put)
  if other then return refused('write ' .. other .. ': the step is of another agent') end
end

local function write(keys, args, named)
  local wanted = unpacked(args)
  local forbidden = refusal_of(keys, named, wanted)
  if forbidden then return forbidden end
  local known = redis.call('HGET', keys[OPERATIONS], wanted.operation)
  if known then return replayed(keys, wanted, known) end
  -- Keys of another type stop the script here, before anything is written.
  redis.call('HLEN', keys[VALUES])
  redis.call('HLEN', keys[LEASES])
  redis.call('XLEN', keys[EVENTS])
  local refusal = conflict(keys, wanted)
  if refusal then return refusal end
  local metas = hmget(keys[META], wanted.put)
  for index, name in ipairs(wanted.put) do
    if not permitted(wanted, name, not metas[index]) then
      return with(answer('forbidden', keys, {}, wanted.now), name)
    end
  end
  return held(keys, wanted) or store(keys, named, wanted, metas)
end

-- KEYS: VALUES, META, LEASES. A lease that has ended is prolonged too, as long as the step still has the holder's version.
local function renew(keys, args, named)
  local step, version, now, prefix = args[1], args[2], now_ms(), prefix_of(named)
  if not unlimited(prefix) and (not may(prefix, 'role:worker') or of_another_agent(prefix, keys, { STEP .. step })) then
    return refused('hold ' .. STEP .. step)
  end
  if version == ABSENT or version_of(redis.call('HGET', keys[META], STEP .. step)) ~= version then return { now, 0 } end
  redis.call('HSET', keys[LEASES], step, whole(now + tonumber(args[3])) .. ' ' .. version)
  local expiry = redis.call('PEXPIRETIME', keys[META])
  if expiry > 0 then redis.call('PEXPIREAT', keys[LEASES], whole(expiry)) end
  return { now, 1 }
end

-- The events after a position, at most so many.
local function events(keys, args) return redis.call('XRANGE', keys[1], '(' .. args[1] .. '-0', '+', 'COUNT', args[2]) end

-- The due index: one sorted set a shard, member -> mark (when to look).

local function set_mark(key, member, mark, before)
  if before and mark == tonumber(before) then mark = mark + 1 end -- a mark always changes: a look begun before is outdated
  redis.call('ZADD', key, whole(mark), member)
  return now_ms()
end

local function enter(keys, args)
  local before, mark = redis.call('ZSCORE', keys[1], args[1]), now_ms() + tonumber(args[2])
  if before then mark = math.min(tonumber(before) - 1, mark) end
  redis.call('ZADD', keys[1], whole(mark), args[1])
  return now_ms()
end

local function mark(keys, args)
  return set_mark(keys[1], args[1], now_ms() + tonumber(args[2]), redis.call('ZSCORE', keys[1], args[1]))
end

local function due(keys, args)
  local now = now_ms()
  local moved, found = whole(now + tonumber(args[2])), { now }
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', keys[1], '-inf', whole(now), 'LIMIT', 0, args[1])) do
    redis.call('ZADD', keys[1], moved, member)
    found[#found + 1], found[#found + 2] = member, moved
  end
  return found
end

local function settle(keys, args)
  local before = redis.call('ZSCORE', keys[1], args[1])
  if not before or tonumber(before) ~= tonumber(args[2]) then return now_ms() end
  if args[3] == '' then
    redis.call('ZREM', keys[1], args[1])
    return now_ms()
  end
  return set_mark(keys[1], args[1], now_ms() + tonumber(args[3]), before)
end

local function drop(keys, args) return redis.call('ZREM', keys[1], args[1]) end

-- An index in order of arrival; only the newest `args[2]` members stay (0: all).
local function add(keys, args)
  redis.call('ZADD', keys[1], 'NX', whole(now_us()), args[1])
  local keep = tonumber(args[2])
  if keep > 0 then redis.call('ZREMRANGEBYRANK', keys[1], 0, -keep - 1) end
  return now_ms()
end

local function newest(keys, args) return redis.call('ZREVRANGE', keys[1], 0, args[1] - 1) end

local function is_step(member) return string.find(member, '#', 1, true) ~= nil end

-- Who may do what in the indexes; which of them a user sees at all is a matter of its key patterns. Looking earlier harms
-- nobody. Looking later, or no more, is for a worker only where it is about a step.
local INDEX_ROLES = {
  enter = function() return { 'producer', 'orchestrator', 'worker' } end,
  mark = function(args) return is_step(args[1]) and { 'orchestrator', 'worker' } or { 'orchestrator' } end,
  due = function() return { 'orchestrator' } end,
  settle = function() return { 'orchestrator' } end,
  drop = function(args, kind) return kind == 'due' and is_step(args[1]) and { 'orchestrator', 'worker' } or { 'orchestrator' } end,
  add = function(args, kind) return kind == 'recent' and { 'producer' } or args[2] == '0' and { 'orchestrator', 'worker' } or {} end,
}

-- The prefix and the kind of an index, from its key.
local function index_of(name)
  local prefix = string.match(name, '^(.-):due:%d+$')
  if prefix then return prefix, 'due' end
  prefix = string.match(name, '^(.-):recent:')
  if prefix then return prefix, 'recent' end
  return string.match(name, '^(.-):dead$') or '', 'dead'
end

local function sealed(named)
  if SEAL == '' then return named end
  local keys = {}
  for index, name in ipairs(named) do keys[index] = name .. ':' .. SEAL end
  return keys
end

local function register(verb, act, ...)
  local roles = INDEX_ROLES[verb]
  local function called(named, args)
    if roles then
      local prefix, kind = index_of(named[1])
      if not unlimited(prefix) and not may_be_one_of(prefix, roles(args, kind)) then return refused(verb .. ' in the index') end
    end
    return act(sealed(named), args, named)
  end
  redis.register_function { function_name = '@LIBRARY@_' .. verb, callback = called, flags = { ... } }
end

register('read', read, 'no-writes')
register('events', events, 'no-writes')
register('newest', newest, 'no-writes')
register('write', write)
register('renew', renew, 'allow-oom')
register('enter', enter)
register('mark', mark, 'allow-oom')
register('due', due, 'allow-oom')
register('settle', settle, 'allow-oom')
register('drop', drop, 'allow-oom')
register('add', add)
