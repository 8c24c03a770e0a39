PRAGMA application_id = 1684633189;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE blob_uses (
      key  INTEGER NOT NULL,  -- executions.key
      blob INTEGER NOT NULL,  -- blobs.number
      PRIMARY KEY (key, blob)
    ) WITHOUT ROWID
    ;
INSERT INTO "blob_uses" VALUES(3,1);
CREATE TABLE blobs (
      number     INTEGER PRIMARY KEY,
      digest     BLOB NOT NULL UNIQUE,  -- SHA-256 of the content
      compressed INTEGER NOT NULL,      -- 1: zlib
      data       BLOB NOT NULL
    );
INSERT INTO "blobs" VALUES(1,X'418F4E6ACB1E50A19E80F08B4F4CD2EB2CC9BFD43820F4ED9FDAD488D4CDFC49',1,X'7801EDD6C109C0200C05D0558297DEDCC1510A154144A1C583DB779177CD3124FFBF5462ACD9E2B9CFF5455FFB9DF5E430B507F7E02F248144D40C1A9209D88811A9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AA9988AD30FF5F76600');
CREATE TABLE checkpoints (
      key      INTEGER PRIMARY KEY,  -- executions.key
      sequence INTEGER NOT NULL,     -- of the last event in the fold
      checksum INTEGER NOT NULL,     -- of data
      data     BLOB NOT NULL
    );
INSERT INTO "checkpoints" VALUES(3,3,1676094033,X'00666F6C64206F66207468726565206576656E7473');
CREATE TABLE event_types (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO "event_types" VALUES(1,'execution_started');
INSERT INTO "event_types" VALUES(2,'execution_resumed');
INSERT INTO "event_types" VALUES(3,'execution_completed');
INSERT INTO "event_types" VALUES(4,'execution_failed');
INSERT INTO "event_types" VALUES(5,'execution_cancelled');
INSERT INTO "event_types" VALUES(6,'execution_continue_as_new');
INSERT INTO "event_types" VALUES(7,'path_started');
INSERT INTO "event_types" VALUES(8,'path_branched');
INSERT INTO "event_types" VALUES(9,'path_waiting');
INSERT INTO "event_types" VALUES(10,'path_joined');
INSERT INTO "event_types" VALUES(11,'path_completed');
INSERT INTO "event_types" VALUES(12,'path_failed');
INSERT INTO "event_types" VALUES(13,'path_cancelled');
INSERT INTO "event_types" VALUES(14,'step_started');
INSERT INTO "event_types" VALUES(15,'step_completed');
INSERT INTO "event_types" VALUES(16,'step_failed');
INSERT INTO "event_types" VALUES(17,'step_retried');
INSERT INTO "event_types" VALUES(18,'step_caught');
INSERT INTO "event_types" VALUES(19,'condition_evaluated');
INSERT INTO "event_types" VALUES(20,'iteration_started');
INSERT INTO "event_types" VALUES(21,'iteration_completed');
INSERT INTO "event_types" VALUES(22,'operation_started');
INSERT INTO "event_types" VALUES(23,'operation_completed');
INSERT INTO "event_types" VALUES(24,'operation_failed');
INSERT INTO "event_types" VALUES(25,'time_accessed');
INSERT INTO "event_types" VALUES(26,'random_generated');
INSERT INTO "event_types" VALUES(27,'version_decision');
INSERT INTO "event_types" VALUES(28,'interrupt_raised');
INSERT INTO "event_types" VALUES(29,'interrupt_resolved');
INSERT INTO "event_types" VALUES(30,'state_mutated');
INSERT INTO "event_types" VALUES(31,'signal_received');
CREATE TABLE events (
      place       INTEGER PRIMARY KEY,
      recorded_at INTEGER NOT NULL,
      type        INTEGER NOT NULL,  -- event_types.number
      id          BLOB NOT NULL,     -- 16 bytes of the UUIDv7 in event_..., or another id as text
      path        TEXT NOT NULL,
      step        TEXT NOT NULL,
      data        TEXT NOT NULL      -- JSON
    , checksum INTEGER);
INSERT INTO "events" VALUES(4294967297,1750000001000000,1,X'01977420DFE8700090AE548300000001','','','{"workflow_name":"greet","inputs":{"name":"Ada","when":{"$type":"date","value":"2025-06-01"}},"definition":{"name":"greet","steps":[]},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","source":"Workflows: []","written_by":"0.1.0"}',2187101494);
INSERT INTO "events" VALUES(4294967298,1750000002000000,7,X'01977420E3D0700090AE548300000002','main','','{"current_step":"a"}',3926178769);
INSERT INTO "events" VALUES(4294967299,1750000003000000,14,X'01977420E7B8700090AE548300000003','main','a','{"step_type":"script","step_params":{"x":1},"visit":1}',499347433);
INSERT INTO "events" VALUES(4294967300,1750000004000000,22,X'01977420EBA0700090AE548300000004','main','','{"operation_id":"op_1","operation_type":"script_execution","parameters":{"script":"1 + 1"},"parameters_hash":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","iteration_index":0,"key":0}',2826333318);
INSERT INTO "events" VALUES(4294967301,1750000005000000,23,X'01977420EF88700090AE548300000005','main','','{"operation_id":"op_1","operation_type":"script_execution","duration":1500,"result":{"n":2,"big":{"$type":"int","value":"1180591620717411303424"}},"usage":{"input_tokens":3}}',2026118181);
INSERT INTO "events" VALUES(4294967302,1750000006000000,30,X'01977420F370700090AE548300000006','main','','{"mutations":[{"type":"set","key":"x","value":[1,null,"ü"]},{"type":"delete","key":"y"}]}',3184584329);
INSERT INTO "events" VALUES(4294967303,1750000007000000,15,'odd-7','main','a','{"output":"2","stored_variable":"x","usage":{"input_tokens":3}}',861465693);
INSERT INTO "events" VALUES(4294967304,1750000008000000,19,X'01977420FB40700090AE548300000008','main','','{"condition":"x > 1","target":"b","result":true}',3783844332);
INSERT INTO "events" VALUES(4294967305,1750000009000000,8,X'01977420FF28700090AE548300000009','main','','{"new_paths":[{"id":"main-1","current_step":"b","inherit_outputs":true},{"id":"main-2","current_step":"c"}]}',4106016510);
INSERT INTO "events" VALUES(4294967306,1750000010000000,11,X'019774210310700090AE54830000000A','main','','{"final_step":"a"}',287918753);
INSERT INTO "events" VALUES(4294967307,1750000011000000,20,X'0197742106F8700090AE54830000000B','main','','{"iteration_index":0,"item":"i","item_key":"k"}',933302725);
INSERT INTO "events" VALUES(4294967308,1750000012000000,21,X'019774210AE0700090AE54830000000C','main','','{"iteration_index":0,"result":"r","item":"i","item_key":"k"}',3839047777);
INSERT INTO "events" VALUES(4294967309,1750000013000000,24,X'019774210EC8700090AE54830000000D','main','','{"operation_id":"op_2","operation_type":"action_execution","duration":10,"error":"no"}',1041724178);
INSERT INTO "events" VALUES(4294967310,1750000014000000,16,X'0197742112B0700090AE54830000000E','main','a','{"error":"no"}',2570405479);
INSERT INTO "events" VALUES(4294967311,1750000015000000,12,X'019774211698700090AE54830000000F','main','','{"error":"no"}',991771163);
INSERT INTO "events" VALUES(4294967312,1750000016000000,13,X'019774211A80700090AE548300000010','main','','{"reason":"sibling"}',3002408989);
INSERT INTO "events" VALUES(4294967313,1750000017000000,4,X'019774211E68700090AE548300000011','','','{"error":"no"}',2150936717);
INSERT INTO "events" VALUES(4294967314,1750000018000000,2,X'019774212250700090AE548300000012','','','{"previous_status":"failed"}',3062310004);
INSERT INTO "events" VALUES(4294967315,1750000019000000,9,X'019774212638700090AE548300000013','main','','{"join_step":"j"}',3551204856);
INSERT INTO "events" VALUES(4294967316,1750000020000000,10,X'019774212A20700090AE548300000014','main','','{"current_step":"j","joined":["main-1"]}',2791397249);
INSERT INTO "events" VALUES(4294967317,1750000021000000,31,X'019774212E08700090AE548300000015','main','','{"signal_type":"go","payload":{"a":1},"source":"me"}',206716625);
INSERT INTO "events" VALUES(4294967318,1750000022000000,27,X'0197742131F0700090AE548300000016','main','','{"change_id":"c1","version":2,"min_version":1,"max_version":2}',1886629441);
INSERT INTO "events" VALUES(4294967319,1750000023000000,25,X'0197742135D8700090AE548300000017','main','','{"accessed_at":"2025-06-01T00:00:00Z","value":"2025-06-01T00:00:00Z"}',1243395372);
INSERT INTO "events" VALUES(4294967320,1750000024000000,26,X'0197742139C0700090AE548300000018','main','','{"method":"random","value":0.5,"seed":7}',4189765249);
INSERT INTO "events" VALUES(4294967321,1750000025000000,6,X'019774213DA8700090AE548300000019','','','{"new_execution_id":"exec_next","reason":"max_events_reached","new_inputs":{"a":1}}',3481720704);
INSERT INTO "events" VALUES(4294967322,1750000026000000,5,X'019774214190700090AE54830000001A','','','{"reason":"enough"}',563912420);
INSERT INTO "events" VALUES(4294967323,1750000027000000,2,X'019774214578700090AE54830000001B','','','{"previous_status":"cancelled"}',3741761545);
INSERT INTO "events" VALUES(4294967324,1750000028000000,3,X'019774214960700090AE54830000001C','','','{"outputs":{"greeting":"hi"},"usage":{"input_tokens":3}}',3853280324);
INSERT INTO "events" VALUES(8589934593,1750000005000000,1,X'01977420EF887003A00FAF5600000001','','','{"workflow_name":"other","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',545244692);
INSERT INTO "events" VALUES(8589934594,1750000002000000,14,X'01977420E3D07003A00FAF5600000002','main','step-1','{"step_type":"script","visit":1}',2005963771);
INSERT INTO "events" VALUES(8589934595,1750000003000000,15,X'01977420E7B87003A00FAF5600000003','main','step-1','{"output":"done"}',1671936315);
INSERT INTO "events" VALUES(12884901889,1750000100000000,1,X'0197742262A07000B2F6991100000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',2684488289);
INSERT INTO "events" VALUES(12884901890,1750000002000000,14,X'01977420E3D07000B2F6991100000002','main','step-1','{"step_type":"script","visit":1}',1156404332);
INSERT INTO "events" VALUES(12884901891,1750000003000000,23,X'01977420E7B87000B2F6991100000003','main','a','{"operation_id":"op_1","operation_type":"agent_call","duration":5,"result":{"text":{"$type":"blob","value":["418f4e6acb1e50a19e80f08b4f4cd2eb2cc9bfd43820f4ed9fdad488d4cdfc49",88002]}}}',3006044302);
INSERT INTO "events" VALUES(12884901892,1750000004000000,15,X'01977420EBA07000B2F6991100000004','main','a','{"output":{"$type":"blob","value":["418f4e6acb1e50a19e80f08b4f4cd2eb2cc9bfd43820f4ed9fdad488d4cdfc49",88002]}}',3867811088);
CREATE TABLE executions (
      key           INTEGER PRIMARY KEY,
      id            TEXT NOT NULL UNIQUE,
      workflow_name TEXT NOT NULL,
      status        TEXT NOT NULL,
      last_sequence INTEGER NOT NULL,
      size          INTEGER NOT NULL,  -- bytes of payload
      created_at    INTEGER NOT NULL,  -- times are microseconds since 1970, UTC
      started_at    INTEGER,
      ended_at      INTEGER,
      fingerprint   TEXT,
      error         TEXT
    , token INTEGER NOT NULL DEFAULT 0, checksum INTEGER NOT NULL DEFAULT 0);
INSERT INTO "executions" VALUES(1,'exec_01jxt21q02e008000000000002','greet','completed',28,1793,1750000001000000,1750000001000000,1750000028000000,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,3853280324);
INSERT INTO "executions" VALUES(2,'exec_01jxt21q03e008000000000003','other','running',3,179,1750000005000000,1750000005000000,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,1671936315);
INSERT INTO "executions" VALUES(3,'exec_01jxt21q09e008000000000009','greet','running',4,88458,1750000100000000,1750000100000000,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,1,3867811088);
CREATE TABLE leases (
      key            INTEGER PRIMARY KEY,  -- executions.key
      host           TEXT NOT NULL,
      pid            INTEGER NOT NULL,
      started        INTEGER NOT NULL,
      name           TEXT NOT NULL,
      boot           TEXT NOT NULL,
      expires_at     INTEGER NOT NULL,
      expires_uptime INTEGER               -- microseconds of the monotonic clock of that boot
    );
INSERT INTO "leases" VALUES(3,'laptop',4711,123456,'ipykernel_launcher.py','785f51a6-04e9-4abc-9bc6-345d6441dfb1 pid:[4026531836]',1750000034000000,4921570000);
CREATE VIEW log AS
    SELECT executions.id AS execution_id, events.place & 4294967295 AS sequence, events.recorded_at,
      event_types.name AS event_type, events.path, events.step, events.data
    FROM executions
    JOIN events ON events.place BETWEEN executions.key << 32 AND executions.key << 32 | 4294967295
    JOIN event_types ON event_types.number = events.type;
COMMIT;
