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

-- A write's arguments, as `ops.blackboard.replies` packs them: these, then the lists of `lists_of`.
local OPERATION, ROLE, WRITER, CAUSE, LABELS, SUFFIX, HEARD, CALM, GRACE, EXPIRE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local LEASE_STEP, LEASE_MS, AFTER_FIELD, AFTER_MS, EXPECTS, PUTS, RETURNS = 11, 12, 13, 14, 15, 16, 17

local STEP, RESULT = 'step/', 'result/'
local ANSWER = 'answer' -- has a channel of its own: who waits for it alone hears of nothing else
local NAMES = { 'values', 'meta', 'leases', 'operations', 'events' }

local function whole(number) return string.format('%.0f', number) end

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function now_ms() return math.floor(now_us() / 1000) end

-- The time in ms as digits, put together from digits: to format a number of that size costs more than to ask for the time.
local function clock()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6, -4)
end

-- The fields whose names stand in a list from `first` to `last`.
local function hmget(key, names, first, last)
  if first > last then return {} end
  if last - first < CHUNK then return redis.call('HMGET', key, unpack(names, first, last)) end
  local all = {}
  for from = first, last, CHUNK do
    for _, value in ipairs(redis.call('HMGET', key, unpack(names, from, math.min(from + CHUNK - 1, last)))) do
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
local function of_another_agent(prefix, keys, names, first, last)
  local own
  for index = first, last do
    local name = names[index]
    local step = string.match(name, '^step/(.*)$') or string.match(name, '^result/(.*)$')
    if step and step ~= own then
      local definition = redis.call('HGET', keys[VALUES], 'plan/' .. step)
      if not definition or not may(prefix, 'agent:' .. cjson.decode(definition).agent) then return name end
      own = step
    end
  end
end

local function refused(what) return redis.error_reply('NOPERM this user may not ' .. what) end

local function version_of(meta) return meta and string.match(meta, '^%d+ %d+ (.*)$') or ABSENT end

local function lease_of(record)
  local ends, version = string.match(record or '', '^(%d+) (.*)$')
  return tonumber(ends), version
end

-- One look at all that a decision and its answer need of the fields that `names` has after `before`: the metas of all, the
-- values of those up to `returned`, the leases of the steps among these and of those after `unheld`, which are all steps.
local function look(keys, names, before, returned, unheld)
  local last, steps, shown = #names, {}, 0
  for index = before + 1, returned do
    local name = names[index]
    if string.sub(name, 1, #STEP) == STEP then
      shown = shown + 1
      steps[shown] = string.sub(name, #STEP + 1)
    end
  end
  for index = unheld + 1, last do steps[shown + index - unheld] = string.sub(names[index], #STEP + 1) end
  names[last + 1] = COUNTER
  local metas = hmget(keys[META], names, before + 1, last + 1)
  return {
    position = tonumber(metas[last + 1 - before] or 0),
    values = hmget(keys[VALUES], names, before + 1, returned), metas = metas, returned = returned - before,
    leases = hmget(keys[LEASES], steps, 1, #steps), steps = steps, shown = shown,
  }
end

-- What every answer begins with: kind, clock, last position, then values, metas and leases (of the steps) of what is returned.
local function answer(kind, now, seen, ...)
  -- Redis ends a list at its first nil: what was looked at for the decision alone is not sent.
  seen.metas[seen.returned + 1], seen.leases[seen.shown + 1] = nil, nil
  return { kind, now, seen.position, seen.values, seen.metas, seen.leases, ... }
end

local function read(keys, names) return answer('read', tonumber(clock()), look(keys, names, 0, #names, #names)) end

-- The stored outcome of an operation is its event.
local function replayed(keys, now, seen, position)
  local id = position .. '-0'
  local event = redis.call('XRANGE', keys[EVENTS], id, id)[1][2]
  local names = {}
  for index = 15, #event, 2 do names[#names + 1] = event[index] end
  return answer('replayed', now, seen, tonumber(position), tonumber(event[2]), event[14], names)
end

-- After which argument each list of a write begins: the versions of `expect` and the values of `put`, then the names of all;
-- those of `unheld` are fields too.
local function lists_of(args)
  local expected, puts = tonumber(args[EXPECTS]), tonumber(args[PUTS])
  local returning = RETURNS + expected + puts
  local expect = returning + tonumber(args[RETURNS])
  local put = expect + expected
  return {
    versions = RETURNS, values = RETURNS + expected,
    returning = returning, expect = expect, put = put, unheld = put + puts, last = #args,
  }
end

local function conflict(args, lists, now, seen)
  local metas, returning, versions = seen.metas, lists.returning, lists.versions - lists.expect
  for index = lists.expect + 1, lists.put do
    local actual = version_of(metas[index - returning])
    if actual ~= args[index + versions] then return answer('conflict', now, seen, args[index], args[index + versions], actual) end
  end
end

-- Most writes expect few fields: a look at each is cheaper than a table of them.
local function expects(args, lists, name)
  for index = lists.expect + 1, lists.put do
    if args[index] == name then return true end
  end
end

-- Who may put a field of a namespace, and when.
local function always() return true end
local function while_absent(_, _, _, absent) return absent end
local function if_expected(args, lists, name) return expects(args, lists, name) end
local function if_fenced(args, lists, name) return expects(args, lists, STEP .. string.sub(name, #RESULT + 1)) end
local function once_if_fenced(args, lists, name, absent) return absent and if_fenced(args, lists, name) end
local function if_a_step_is(args, lists)
  for index = lists.expect + 1, lists.put do
    if string.sub(args[index], 1, #STEP) == STEP then return true end
  end
end

local OWNERS = {
  ['request'] = { producer = while_absent }, ['card'] = { producer = while_absent }, ['constraint/'] = { producer = while_absent },
  ['plan'] = { orchestrator = always }, ['plan/'] = { orchestrator = always }, ['answer'] = { orchestrator = always },
  ['boundary'] = { orchestrator = always }, ['absorbed'] = { orchestrator = always },
  ['status'] = { orchestrator = always, producer = while_absent },
  ['session'] = { producer = if_expected },
  ['step/'] = { orchestrator = always, worker = if_expected },
  ['result/'] = { orchestrator = once_if_fenced, worker = if_fenced },
  ['field/'] = { orchestrator = always, worker = if_a_step_is, producer = while_absent },
}

local function permitted(args, lists, name, absent)
  local owners = OWNERS[string.match(name, '^[^/]*/') or name]
  local may_put = owners and owners[args[ROLE]]
  return may_put and may_put(args, lists, name, absent)
end

local function forbidden(args, lists, now, seen)
  local metas, returning = seen.metas, lists.returning
  for index = lists.put + 1, lists.unheld do
    -- False is absent. Nil was not looked at, where a caller's counts are wrong, and is not absent.
    if not permitted(args, lists, args[index], metas[index - returning] == false) then
      return { 'forbidden', now, seen.position, {}, {}, {}, args[index] }
    end
  end
end

-- After an outage as long as a lease nobody takes over for one lease, so that holders renew first. `heard` is the time of
-- the last answer that the caller got from this server: also a call that was sent before the outage and is read after it is caught.
local function calm_until(args, now)
  local heard, calm, grace = tonumber(args[HEARD]), tonumber(args[CALM]), tonumber(args[GRACE])
  if heard > 0 and now - heard >= grace then return math.max(calm, now + grace) end
  return calm
end

local function held(args, lists, now, seen)
  local metas, returning = seen.metas, lists.returning
  for index = lists.unheld + 1, lists.last do
    local ends, version = lease_of(seen.leases[seen.shown + index - lists.unheld])
    if ends and version == version_of(metas[index - returning]) then
      local open = math.max(ends, calm_until(args, now))
      if now < open then return answer('held', now, seen, string.sub(args[index], #STEP + 1), open) end
    end
  end
  if args[AFTER_FIELD] ~= '' then
    local at = now
    for index = lists.expect + 1, lists.put do
      if args[index] == args[AFTER_FIELD] then at = tonumber(string.match(metas[index - returning] or '', '^%d+ (%d+) ')) or now end
    end
    local open = at + tonumber(args[AFTER_MS])
    if now < open then return answer('held', now, seen, args[AFTER_FIELD], open) end
  end
end

-- A write that says nothing of it gives new keys the expiry of the others.
local function set_expiry(keys, expire, now, before)
  if expire == 0 then
    for index = 1, REQUEST_KEYS do redis.call('PERSIST', keys[index]) end
    return
  end
  local at = expire > 0 and now + expire * 1000 or before
  if at > 0 then
    at = whole(at)
    for index = 1, REQUEST_KEYS do redis.call('PEXPIREAT', keys[index], at) end
  end
end

-- What listeners are told: the position, and which fields were put (a star where they are many), after a NUL each.
local function hint(position, names, before, last)
  if last - before > 16 then return position .. '\0*' end
  return last == before and position or position .. '\0' .. table.concat(names, '\0', before + 1, last)
end

-- The count of the version that follows the one in a field's meta.
local function next_count(meta)
  local count = meta and string.match(meta, '^%d+ %d+ (%d+)') or string.match(version_of(meta), '^%d+')
  return count == ABSENT and '1' or string.format('%d', count + 1)
end

local function store(keys, named, args, lists, at, seen)
  local call, metas, offset = redis.call, seen.metas, lists.put - lists.returning
  local now, number, expire = tonumber(at), seen.position + 1, tonumber(args[EXPIRE])
  local expiry = expire < 0 and call('PEXPIRETIME', keys[META]) or 0
  local position = string.format('%d', number)
  local stamp, suffix, leased = position .. ' ' .. at .. ' ', '.' .. args[SUFFIX], STEP .. args[LEASE_STEP]
  local counts, values, records, lease, answered = {}, {}, {}, nil, false
  for index = 1, lists.unheld - lists.put do
    local name, count = args[lists.put + index], next_count(metas[offset + index])
    counts[index] = count
    values[2 * index - 1], values[2 * index] = name, args[lists.values + index]
    records[2 * index - 1], records[2 * index] = name, stamp .. count .. suffix
    if name == leased then lease = whole(now + args[LEASE_MS]) .. ' ' .. count .. suffix end
    answered = answered or name == ANSWER
  end
  local told = table.concat(counts, ' ')
  -- First, because it is the one that could be refused: a stream that is ahead of the counter.
  call('XADD', keys[EVENTS], position .. '-0', 'at', at, 'role', args[ROLE], 'writer', args[WRITER], 'operation', args[OPERATION],
    'cause', args[CAUSE], 'labels', args[LABELS], 'counts', told, unpack(values))
  if #values > 0 then call('HSET', keys[VALUES], unpack(values)) end
  call('HSET', keys[META], COUNTER, position, unpack(records))
  call('HSET', keys[OPERATIONS], args[OPERATION], position)
  if lease then call('HSET', keys[LEASES], args[LEASE_STEP], lease) end
  set_expiry(keys, expire, now, expiry)
  call('PUBLISH', named[EVENTS], hint(position, args, lists.put, lists.unheld))
  if answered then call('PUBLISH', named[EVENTS] .. ':' .. ANSWER, position) end
  -- From here on what was seen is what is.
  seen.position = number
  for place = 1, seen.returned > 0 and #values or 0, 2 do
    for index = 1, seen.returned do
      if args[lists.returning + index] == values[place] then
        seen.values[index], metas[index] = values[place + 1], records[place + 1]
      end
    end
  end
  for index = 1, lease and seen.shown or 0 do
    if seen.steps[index] == args[LEASE_STEP] then seen.leases[index] = lease end
  end
  return answer('written', now, seen, number, now, told)
end

-- Why this user may not write this, if its access list says so.
local function refusal_of(keys, named, args, lists)
  if unlimited('') then return end -- a prefix of nobody's: who may use every key there is need not be asked about each
  local prefix = prefix_of(named)
  if unlimited(prefix) then return end
  local role, expire = args[ROLE], tonumber(args[EXPIRE])
  if not may(prefix, 'role:' .. role) then return refused('write as ' .. role) end
  if role == 'orchestrator' then return end
  -- A producer may say it of a session's record, which is no request and never becomes one.
  local session = role == 'producer' and expire > 0 and lists.unheld - lists.put == 1 and args[lists.unheld] == 'session'
    and not redis.call('HGET', keys[VALUES], 'request')
  if expire >= 0 and not session then return refused('say when a request expires') end
  local other = role == 'worker' and of_another_agent(prefix, keys, args, lists.put + 1, lists.unheld)
  if other then return refused('write ' .. other .. ': the step is of another agent') end
end

local function write(keys, args, named)
  local lists = lists_of(args)
  local refusal = refusal_of(keys, named, args, lists)
  if refusal then return refusal end
  local at, known = clock(), redis.call('HGET', keys[OPERATIONS], args[OPERATION])
  local now = tonumber(at)
  local seen = look(keys, args, lists.returning, lists.expect, lists.unheld)
  if known then return replayed(keys, now, seen, known) end
  -- Keys of another type stop the script before anything is written: here, or (the stream) at the first command that writes.
  if seen.returned == 0 then redis.call('HLEN', keys[VALUES]) end
  if #seen.steps == 0 then redis.call('HLEN', keys[LEASES]) end
  return conflict(args, lists, now, seen) or forbidden(args, lists, now, seen) or held(args, lists, now, seen)
    or store(keys, named, args, lists, at, seen)
end

-- KEYS: VALUES, META, LEASES. A lease that has ended is prolonged too, as long as the step still has the holder's version.
local function renew(keys, args, named)
  local step, version, now, prefix = args[1], args[2], now_ms(), prefix_of(named)
  if not unlimited(prefix) and (not may(prefix, 'role:worker') or of_another_agent(prefix, keys, { STEP .. step }, 1, 1)) then
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
