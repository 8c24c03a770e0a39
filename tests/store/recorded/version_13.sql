PRAGMA application_id = 1684633189;
PRAGMA user_version = 13;
BEGIN TRANSACTION;
CREATE TABLE blob_uses (
      key  INTEGER NOT NULL,  -- executions.key
      blob INTEGER NOT NULL,  -- blobs.number
      PRIMARY KEY (key, blob)
    ) WITHOUT ROWID
    ;
INSERT INTO "blob_uses" VALUES(3,1);
INSERT INTO "blob_uses" VALUES(8,2);
INSERT INTO "blob_uses" VALUES(9,3);
CREATE TABLE blobs (
      number     INTEGER PRIMARY KEY,
      digest     BLOB NOT NULL UNIQUE,  -- SHA-256 of the content
      compressed INTEGER NOT NULL,      -- 1: zlib
      data       BLOB NOT NULL
    );
INSERT INTO "blobs" VALUES(1,X'C39E588991F5C4CC3D2D0C1973B2F40039765D135A661E9330E562A1BDD47A5D',1,X'7801EDD0211100400800B02A7F347BC16150F4177440CF2CC0A2FF543E1A3060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C18B80DC4023B58D2D3');
INSERT INTO "blobs" VALUES(2,X'E9C9B391CC83F8B8A8238E1945E0A79E31847FAEC4583D3B87A0038D54340F0B',1,X'7801EDD0B10000000002309730A34FA36343588A0103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103060C183060C0800103B70319EF74336B');
INSERT INTO "blobs" VALUES(3,X'ECC7FEDC47C9E851B1A7A8E2F64A050FEBC082B88A4473D7DD9CFFB5227C697C',1,X'78018B8E563ABCF251C38A983C259DE86A259592CA8254252BA5CCBC12251DA5B2C49C5210CFD0D0C2C0D4D2D0CCC8C0DCD0DCC4D0D0D8C0D8C4C844A956C750CF205627DAD2C8C8D8D8DCC8C0D8CCC2D4C4DCDCD4C2C04247A962148C86C0100D01A5D8581D5D0360DA060026636243');
CREATE TABLE checkpoints (
      key      INTEGER NOT NULL,  -- executions.key
      sequence INTEGER NOT NULL,  -- of the last event in the fold
      checksum INTEGER NOT NULL,  -- of data and of the log up to there
      data     BLOB NOT NULL,
      PRIMARY KEY (key, sequence)
    ) WITHOUT ROWID
    ;
INSERT INTO "checkpoints" VALUES(3,1,3258816532,X'666F6C64206F66206F6E65206576656E74');
INSERT INTO "checkpoints" VALUES(3,3,2191473053,X'666F6C64206F66207468726565206576656E7473');
CREATE TABLE event_types (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO "event_types" VALUES(1,'execution_started');
INSERT INTO "event_types" VALUES(2,'execution_resumed');
INSERT INTO "event_types" VALUES(3,'execution_paused');
INSERT INTO "event_types" VALUES(4,'execution_completed');
INSERT INTO "event_types" VALUES(5,'execution_failed');
INSERT INTO "event_types" VALUES(6,'execution_cancelled');
INSERT INTO "event_types" VALUES(7,'execution_continue_as_new');
INSERT INTO "event_types" VALUES(8,'execution_moved');
INSERT INTO "event_types" VALUES(9,'path_started');
INSERT INTO "event_types" VALUES(10,'path_branched');
INSERT INTO "event_types" VALUES(11,'path_waiting');
INSERT INTO "event_types" VALUES(12,'path_joined');
INSERT INTO "event_types" VALUES(13,'path_completed');
INSERT INTO "event_types" VALUES(14,'path_failed');
INSERT INTO "event_types" VALUES(15,'path_cancelled');
INSERT INTO "event_types" VALUES(16,'step_started');
INSERT INTO "event_types" VALUES(17,'step_completed');
INSERT INTO "event_types" VALUES(18,'step_failed');
INSERT INTO "event_types" VALUES(19,'step_retried');
INSERT INTO "event_types" VALUES(20,'step_caught');
INSERT INTO "event_types" VALUES(21,'condition_evaluated');
INSERT INTO "event_types" VALUES(22,'iteration_started');
INSERT INTO "event_types" VALUES(23,'iteration_completed');
INSERT INTO "event_types" VALUES(24,'operation_started');
INSERT INTO "event_types" VALUES(25,'operation_completed');
INSERT INTO "event_types" VALUES(26,'operation_failed');
INSERT INTO "event_types" VALUES(27,'time_accessed');
INSERT INTO "event_types" VALUES(28,'random_generated');
INSERT INTO "event_types" VALUES(29,'version_decision');
INSERT INTO "event_types" VALUES(30,'interrupt_raised');
INSERT INTO "event_types" VALUES(31,'interrupt_joined');
INSERT INTO "event_types" VALUES(32,'interrupt_resolved');
INSERT INTO "event_types" VALUES(33,'interrupt_expired');
INSERT INTO "event_types" VALUES(34,'state_mutated');
INSERT INTO "event_types" VALUES(35,'signal_received');
INSERT INTO "event_types" VALUES(36,'execution_pictured');
INSERT INTO "event_types" VALUES(37,'iteration_failed');
INSERT INTO "event_types" VALUES(38,'event_emitted');
INSERT INTO "event_types" VALUES(39,'path_started+step_started');
INSERT INTO "event_types" VALUES(40,'operation_completed+state_mutated+step_completed');
INSERT INTO "event_types" VALUES(41,'step_started+operation_started');
INSERT INTO "event_types" VALUES(42,'operation_started+step_completed+operation_completed+operation_started+path_completed');
INSERT INTO "event_types" VALUES(43,'step_started+step_started+path_completed+operation_started');
INSERT INTO "event_types" VALUES(44,'operation_completed+operation_started+path_completed');
INSERT INTO "event_types" VALUES(45,'operation_started+path_completed+operation_completed+step_started+operation_completed+path_completed');
INSERT INTO "event_types" VALUES(46,'iteration_completed+iteration_completed+iteration_completed+step_started+operation_completed');
INSERT INTO "event_types" VALUES(47,'path_completed+operation_started+step_completed+path_completed+path_completed');
INSERT INTO "event_types" VALUES(48,'operation_started+step_started+operation_started');
INSERT INTO "event_types" VALUES(49,'operation_completed+operation_started+iteration_completed+operation_started+path_completed');
INSERT INTO "event_types" VALUES(50,'execution_forked');
INSERT INTO "event_types" VALUES(51,'approval_rule_added');
INSERT INTO "event_types" VALUES(52,'approval_rule_revoked');
INSERT INTO "event_types" VALUES(53,'execution_enqueued');
INSERT INTO "event_types" VALUES(54,'rows_completed');
INSERT INTO "event_types" VALUES(55,'execution_annotated');
INSERT INTO "event_types" VALUES(56,'workspace_opened');
INSERT INTO "event_types" VALUES(57,'files_changed');
INSERT INTO "event_types" VALUES(58,'egress_answered');
INSERT INTO "event_types" VALUES(59,'rollback_started');
INSERT INTO "event_types" VALUES(60,'rollback_added');
INSERT INTO "event_types" VALUES(61,'operations_abandoned');
INSERT INTO "event_types" VALUES(62,'execution_snapshotted');
CREATE TABLE events (
      place       INTEGER PRIMARY KEY,
      recorded_at INTEGER NOT NULL,
      type        INTEGER NOT NULL,  -- event_types.number
      id          BLOB NOT NULL,     -- 16 bytes of the UUIDv7 in event_..., or another id as text
      path        TEXT NOT NULL,
      step        TEXT NOT NULL,
      data        TEXT NOT NULL      -- JSON
    , checksum INTEGER);
INSERT INTO "events" VALUES(4294967297,1750000001000000,1,X'01977420DFE870019EF946BE00000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',4211499601);
INSERT INTO "events" VALUES(4294967298,1750000002000000,16,X'01977420E3D070019EF946BE00000002','main','step-1','{"step_type":"script","visit":1}',3327931512);
INSERT INTO "events" VALUES(4294967299,1750000003000000,17,X'01977420E7B870019EF946BE00000003','main','step-1','{"output":"done"}',137815897);
INSERT INTO "events" VALUES(4294967300,1750000004000000,16,X'01977420EBA070019EF946BE00000004','main','step-2','{"step_type":"script","visit":1}',2654878773);
INSERT INTO "events" VALUES(4294967301,1750000005000000,4,X'01977420EF8870019EF946BE00000005','','','{"outputs":{"greeting":"hi"}}',2330473194);
INSERT INTO "events" VALUES(8589934593,1750000001000000,1,X'01977420DFE87002AE58BD6B00000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","parent":"exec_01jxt21q04e008000000000004","origin":"fork","key":"monday","tags":["nightly","ü"],"note":"as agreed","notebook":"a.ipynb","cell":"c1"}',4215262928);
INSERT INTO "events" VALUES(8589934594,1750000002000000,16,X'01977420E3D07002AE58BD6B00000002','main','step-1','{"step_type":"script","visit":1}',3694329583);
INSERT INTO "events" VALUES(8589934595,1750000003000000,17,X'01977420E7B87002AE58BD6B00000003','main','step-1','{"output":"done"}',2144126819);
INSERT INTO "events" VALUES(8589934596,1750000004000000,30,X'01977420EBA07002AE58BD6B00000004','main','ask','{"interrupt_id":"question_1","kind":"confirm","question":"Go on?"}',3431300703);
INSERT INTO "events" VALUES(12884901889,1750000001000000,1,X'01977420DFE87001A4CBB75500000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',1667025342);
INSERT INTO "events" VALUES(12884901890,1750000002000000,16,X'01977420E3D07001A4CBB75500000002','main','step-1','{"step_type":"script","visit":1}',3232021134);
INSERT INTO "events" VALUES(12884901891,1750000003000000,25,X'01977420E7B87001A4CBB75500000003','main','','{"operation_id":"op_1","operation_type":"x","duration":1,"result":{"$type":"blob","value":["c39e588991f5c4cc3d2d0c1973b2f40039765d135a661e9330e562a1bdd47a5d",240002]}}',1955184811);
INSERT INTO "events" VALUES(12884901892,1750000004000000,30,X'01977420EBA07001A4CBB75500000004','main','','{"interrupt_id":"question_2","kind":"confirm","question":"Again?"}',247629556);
INSERT INTO "events" VALUES(12884901893,1750000005000000,32,X'01977420EF887001A4CBB75500000005','main','','{"interrupt_id":"question_2","response":true}',3747747660);
INSERT INTO "events" VALUES(12884901894,1750000006000000,5,X'01977420F3707001A4CBB75500000006','','','{"error":"no such file"}',2087784394);
INSERT INTO "events" VALUES(17179869185,1750000001000000,1,X'01977420DFE87002946A4C8000000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","tags":["nightly","nightly"],"notebook":"a.ipynb","cell":"c2"}',1383776611);
INSERT INTO "events" VALUES(17179869186,1750000002000000,16,X'01977420E3D07002946A4C8000000002','main','step-1','{"step_type":"script","visit":1}',3280530499);
INSERT INTO "events" VALUES(17179869187,1750000003000000,17,X'01977420E7B87002946A4C8000000003','main','step-1','{"output":"done"}',3240299462);
INSERT INTO "events" VALUES(17179869188,1750000004000000,30,X'01977420EBA07002946A4C8000000004','main','ask','{"interrupt_id":"question_2","kind":"clarification","question":"Which?"}',1802835);
INSERT INTO "events" VALUES(17179869189,1750000005000000,17,X'01977420EF887002946A4C8000000005','main','step-2','{"output":"done"}',3278420297);
INSERT INTO "events" VALUES(21474836481,1750000001000000,1,X'01977420DFE87003825762C400000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","tags":["weekly"]}',2723255093);
INSERT INTO "events" VALUES(21474836482,1750000002000000,16,X'01977420E3D07003825762C400000002','main','step-1','{"step_type":"script","visit":1}',3676590975);
INSERT INTO "events" VALUES(21474836483,1750000003000000,17,X'01977420E7B87003825762C400000003','main','step-1','{"output":"done"}',334163191);
INSERT INTO "events" VALUES(21474836484,1750000004000000,30,X'01977420EBA07003825762C400000004','main','ask','{"interrupt_id":"question_2","kind":"clarification","question":"Which?"}',1118430809);
INSERT INTO "events" VALUES(21474836485,1750000005000000,5,X'01977420EF887003825762C400000005','','','{"error":"no such file"}',3849227801);
INSERT INTO "events" VALUES(25769803777,1750000001000000,1,X'01977420DFE87000B2F6991100000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","parent":"exec_01jxt21q07e008000000000007"}',1235593205);
INSERT INTO "events" VALUES(25769803778,1750000002000000,16,X'01977420E3D07000B2F6991100000002','main','step-1','{"step_type":"script","visit":1}',3763179630);
INSERT INTO "events" VALUES(25769803779,1750000003000000,17,X'01977420E7B87000B2F6991100000003','main','step-1','{"output":"done"}',1990900957);
INSERT INTO "events" VALUES(25769803780,1750000004000000,30,X'01977420EBA07000B2F6991100000004','main','ask','{"interrupt_id":"question_2","kind":"clarification","question":"Which?"}',2201555889);
INSERT INTO "events" VALUES(25769803781,1750000005000000,5,X'01977420EF887000B2F6991100000005','','','{"error":"no such file"}',316415408);
INSERT INTO "events" VALUES(25769803782,1750000006000000,2,X'01977420F3707000B2F6991100000006','','','{"previous_status":"failed"}',2985462395);
INSERT INTO "events" VALUES(30064771073,1750000001000000,1,X'01977420DFE870009F84C10000000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',4258016543);
INSERT INTO "events" VALUES(30064771074,1750000002000000,39,X'01977420E3D070008000000000002000','main','a','[{"current_step":"a"},
{"step_type":"action","visit":1}]',1420676383);
INSERT INTO "events" VALUES(30064771076,1750000004000000,40,X'01977420EBA070008000000000004000','main','a','[{"operation_id":"op","operation_type":"action","duration":5,"result":"the text that a call has given, which is longer than a reference to it"},
{"mutations":[{"type":"set","key":"x","value":{"$type":"same","value":[0,"result"]}},{"type":"delete","key":"y"}]},
{"output":{"$type":"same","value":[0,"result"]}}]',84851218);
INSERT INTO "events" VALUES(30064771079,1750000007000000,41,X'01977420F75870008000000000007000','main','a','[{"step_type":"action","visit":1},
{"operation_id":"op","operation_type":"action","parameters":{"n":1}}]',1818707716);
INSERT INTO "events" VALUES(30064771081,1750000009000000,4,X'01977420FF2870009F84C10000000009','','','{"outputs":{"greeting":"hi"}}',3311354343);
INSERT INTO "events" VALUES(34359738369,1750000001000000,1,X'01977420DFE87003AF253AD500000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',3477594175);
INSERT INTO "events" VALUES(34359738370,1750000002000000,39,X'01977420E3D070008000000000002000','main','a','[{"current_step":"a"},
{"step_type":"action","visit":1}]',3824928602);
INSERT INTO "events" VALUES(34359738372,1750000004000000,40,X'01977420EBA070008000000000004000','main','a','[{"operation_id":"op","operation_type":"action","duration":5,"result":{"rows":[{"$type":"blob","value":["e9c9b391cc83f8b8a8238e1945e0a79e31847faec4583d3b87a0038d54340f0b",100002]}]}},
{"mutations":[{"type":"set","key":"x","value":{"$type":"same","value":[0,"result"]}},{"type":"delete","key":"y"}]},
{"output":"{}"}]',1525409315);
INSERT INTO "events" VALUES(34359738375,1750000007000000,41,X'01977420F75870008000000000007000','main','a','[{"step_type":"action","visit":1},
{"operation_id":"op","operation_type":"action","parameters":{"n":1}}]',199336445);
INSERT INTO "events" VALUES(34359738377,1750000009000000,40,X'01977420FF2870008000000000009000','main','a','[{"operation_id":"op","operation_type":"action","duration":5,"result":"the text that a call has given, which is longer than a reference to it"},
{"mutations":[{"type":"set","key":"x","value":{"$type":"same","value":[0,"result"]}},{"type":"delete","key":"y"}]},
{"output":{"$type":"same","value":[0,"result"]}}]',3689975985);
INSERT INTO "events" VALUES(38654705665,1750000001000000,1,X'01977420DFE870039A3D5EBD00000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',2879069746);
INSERT INTO "events" VALUES(38654705666,1750000002000000,25,X'01977420E3D070008000000000002000','main','a','{"operation_id":"op","operation_type":"action","duration":5,"result":[{"$type":"float","value":"inf"},{"$type":"bytes","value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}',1594534236);
INSERT INTO "events" VALUES(38654705667,1750000003000000,42,X'01977420E7B870008000000000003000','main','a','[{"operation_id":"op","operation_type":"action","parameters":{"given":{"$type":"dict","value":[["$type","same"]]},"again":[{"$type":"dict","value":[["$type","same"]]},"the text that a call has given, which is longer than a reference to it"]}},
{"output":"text"},
{"operation_id":"op","operation_type":"action","duration":5,"result":{"$type":"dict","value":[["$type","same"]]}},
{"operation_id":"op","operation_type":"action","parameters":{"$type":"same","value":[0,"parameters"]}},
{"final_step":"a"}]',4201238914);
INSERT INTO "events" VALUES(38654705672,1750000008000000,43,X'01977420FB4070008000000000008000','main','a','[{"step_type":"action","visit":1},
{"step_type":"action","visit":1},
{"final_step":"a"},
{"operation_id":"op","operation_type":"action","parameters":{"given":{"k0":1},"again":[{"k0":1},"the text that a call has given, which is longer than a reference to it"]}}]',3831953353);
INSERT INTO "events" VALUES(38654705676,1750000012000000,44,X'019774210AE07000800000000000C000','main','a','[{"operation_id":"op","operation_type":"action","duration":5,"result":{"$type":"date","value":"2025-06-01"}},
{"operation_id":"op","operation_type":"action","parameters":{"given":{"$type":"date","value":"2025-06-01"},"again":[{"$type":"date","value":"2025-06-01"},"the text that a call has given, which is longer than a reference to it"]}},
{"final_step":"a"}]',2422981825);
INSERT INTO "events" VALUES(38654705679,1750000015000000,45,X'0197742116987000800000000000F000','main','a','[{"operation_id":"op","operation_type":"action","parameters":{"given":{"$type":"date","value":"2025-06-01"},"again":[{"$type":"date","value":"2025-06-01"},"the text that a call has given, which is longer than a reference to it"]}},
{"final_step":"a"},
{"operation_id":"op","operation_type":"action","duration":5,"result":{"$type":"date","value":"2025-06-01"}},
{"step_type":"action","visit":1},
{"operation_id":"op","operation_type":"action","duration":5,"result":{"$type":"date","value":"2025-06-01"}},
{"final_step":"a"}]',4184965513);
INSERT INTO "events" VALUES(38654705685,1750000021000000,46,X'019774212E0870008000000000015000','main','a','[{"iteration_index":0,"result":[],"item":[],"item_key":"key"},
{"iteration_index":0,"result":[],"item":[],"item_key":"key"},
{"iteration_index":0,"result":[],"item":[],"item_key":"key"},
{"step_type":"action","visit":1},
{"operation_id":"op","operation_type":"action","duration":5,"result":[]}]',2650674046);
INSERT INTO "events" VALUES(38654705690,1750000026000000,47,X'0197742141907000800000000001A000','main','a','[{"final_step":"a"},
{"operation_id":"op","operation_type":"action","parameters":{"given":[[{"k0":null,"k1":{"$type":"bytes","value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"k2":{"$type":"dict","value":[["$type","same"]]}}],"",{"k0":{},"k1":{}}],"again":[[[{"k0":null,"k1":{"$type":"bytes","value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"k2":{"$type":"dict","value":[["$type","same"]]}}],"",{"k0":{},"k1":{}}],"the text that a call has given, which is longer than a reference to it"]}},
{"output":"text"},
{"final_step":"a"},
{"final_step":"a"}]',3119703286);
INSERT INTO "events" VALUES(38654705695,1750000031000000,48,X'0197742155187000800000000001F000','main','a','[{"operation_id":"op","operation_type":"action","parameters":{"given":{"$type":"blob","value":["ecc7fedc47c9e851b1a7a8e2f64a050febc082b88a4473d7dd9cffb5227c697c",798]},"again":[{"$type":"blob","value":["ecc7fedc47c9e851b1a7a8e2f64a050febc082b88a4473d7dd9cffb5227c697c",798]},"the text that a call has given, which is longer than a reference to it"]}},
{"step_type":"action","visit":1},
{"operation_id":"op","operation_type":"action","parameters":{"$type":"same","value":[0,"parameters"]}}]',1842249864);
INSERT INTO "events" VALUES(38654705698,1750000034000000,49,X'0197742160D070008000000000022000','main','a','[{"operation_id":"op","operation_type":"action","duration":5,"result":[{"$type":"bytes","value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"é \n",{}]},
{"operation_id":"op","operation_type":"action","parameters":{"given":[{"$type":"bytes","value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"é \n",{}],"again":[[{"$type":"bytes","value":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"é \n",{}],"the text that a call has given, which is longer than a reference to it"]}},
{"iteration_index":0,"result":{"$type":"same","value":[0,"result"]},"item":{"$type":"same","value":[0,"result"]},"item_key":"key"},
{"operation_id":"op","operation_type":"action","parameters":{"$type":"same","value":[1,"parameters"]}},
{"final_step":"a"}]',854762024);
INSERT INTO "events" VALUES(42949672961,1750000001000000,1,X'01977420DFE87000B1A5612A00000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',2783018020);
INSERT INTO "events" VALUES(42949672962,1750000002000000,39,X'01977420E3D070008000000000002000','main','a','[{"current_step":"a"},
{"step_type":"action","visit":1}]',810723638);
INSERT INTO "events" VALUES(42949672964,1750000004000000,40,X'01977420EBA070008000000000004000','main','a',X'480D8D564BAE1DB90D9D67190F197A40529444792B861190140934E28E8DF67B8D1886F79E53EEA4936146F756958AA2CE8FF5E1FBCBE72FF59BBFFEF2F91F7FFBE5BEBCC7E5CBBBFFB9F7FAED4BE1AEE7B3024FEEDB1F8B5FDECF772FBFD5D7B74FAF786CB3B6CAA4234DDBC244D65922DB268F7BB8D470E56BABCB515AFBE65A2E3B960F99630CE655E64BE5DC8A639A8365EFC6850D6F3C54D26B64A3932D896ED21472B51D3EE21076E0995A73D3A0BA6576D2BC446B24B55C1DD8679E9B7E8964A33A9DC5E574784CB2CDF30E4B3FC756A6DD39449AF51C3435570FF69464BA943C975AF76DBA6B10ABE1AD675F3FCA1AA6E45EB93D9A6F2FD475AE2495CD9734A817AAF9AE153369F4EAA3A5998A363B6E5CB7E575EECC35BB97DF54F6EAD19B88E998A0FCC236353C4458F2948C9846A553C68D08AEAA2B7C689A01F7DB512869E59CE898AFEE18B795D74EC1C9E783333B3A8D21E708B0DCC97DBC6757F8AC9433474FDEBD7615BBDF73B95578075BADDAE6DDD370C6690E8C43B3BD718C3CD67B5CD95D1C1A07800012B63892A25BF117800E67025DACEDB87FC552738ED5814E2FB391E62A5CC6409D066AC47D7D1DDB4BD7DC20ACF033566EE9BD3538401B579F0BC1A99A10D498C1A2B1C1F3E581D6A31C2AD283366B47583EEF2CD13B1867903505ACB307EFA4BDA0DB9339BDCFCC0D0676EB3DD075BB80A7EA5ABC39E696E1679E0D19422CD9D347D919A00E3247231971460A54AE0D3A56A00CE94E35506C17ED4F8E5B6BF11A35A3AE4B030C94DD5785C0DADDBB186548BA8E0080E34B70756B420841385E8855695F122C5C0B9CE943D1F4CB9135E60516B0868FC67E3E48BB876A1E66DE8A3B5337F4CC30468FCC73CD01E9DA0679B5502BADA1C3029ADDD476EF39134AD8158FA28FD0F5F0054FC1204B25ADC7F26C3D85360507BF67D909AC998BE605C58B2A3BCE0CDBC0890197D41D03421B0CBB2ACDB20D31BB83F7BC0DA86F83A933DA08DA6D9E3E378C3061C2800CF01E0D45695C1E063920DA3AD7D99312C6135D1974122631F8FEB11C34DFE83A08D6460634D416ACE9C017C688037322D6385129E096B8A0AA633C30A10374EC63E7029BB2275A55ACC01F24479A98F0751E90762EBB0F3378886484DC412DD4B7626FC2B9664F6C27A96E52B4403E43F6E8990734E1A003E2A2071A8107212D81FF874E905E084D19871C29B8F256DA84788860085817FCB423BDE6C1C98C0B9205106BD17A7A5B62E404676BC1B0C89CA3D0508079333E8FCF1DE75972581D60EAEA1AC22BE0808BCCDDD022DF13D51331841C161C21668F277C7E32DB538F94E04C80ADB7C22F180F0B5978EFEC731471875CE1276FA0DAB1B13A81DF934C2B071C1691643420CD99B37AAF9BC81DDAB2AE2A3483313012B307D9C4783E1121232B265F006BD30432DDB29D3011DC40E374C391B1682369A53162505D10A091E3DC80021148384BD663687F9AB1AE4A24E40C5AF009A80CF45484176BF74403F0C940342C02A6F71024056E3180B80D832110624814A56882689F3804F34407B2DD8169216E81C96073E8BA023B61C28DCBE07D0EF085E109A0C2F729CC1841FC1D0BA7A6C21CBBD0FF02E5C07F18DEF1059C06E47C3AA3CF03130DE461C23483C4103B1272B16120AC0E950DBC6C0BE612465C4EB5BB5F7EBCFBCBF7975FDF5E7F7E187C7D79FFE1FBCBBFBF04BED62B3E03FE5EDF30F6FF897FBFFBA7377C217C7FF9EB7F16F8AFF5DFFB1FE8CFCF848F3F7EBCFBB3CCAD4FF5FAACFBA3D2B7971F1F7FEEF9F9EDF5CB1B3E29FEBF7A1FFF05837F7616',1572700570);
INSERT INTO "events" VALUES(42949672967,1750000007000000,40,X'01977420F75870008000000000007000','main','a',X'480DED954D0AC3201085F73D457974E9A29B6EBC4A0845EA2C42931A746C23E2DD3B8934ED198A1B7F9E8F37203A5F97E166F28607F7B80E165AB6503F1AA7994435B7D52127365633F445C15388234367302D32E3E5BC3DB6A1DD417B07ED1BB456F0579D10A5A843C61479A34580EEA4EF573C046261C39D92306091D5D38C51B09171FA18CC445FBD3BEFECE825758FB13412AFBE9A9450FAADA68B3CC7952FB988F406BC007596',27358686);
INSERT INTO "events" VALUES(47244640263,1750000007000000,50,X'01977420F758700182816BDB00000007','','','{"source":"exec_01jxt21q01e0080000000000zz","at":6,"workflow_name":"greet","previous":1,"change":{"variables":{"x":1}},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',236719155);
INSERT INTO "events" VALUES(47244640264,1750000008000000,16,X'01977420FB40700182816BDB00000008','main','a','{"step_type":"script","visit":1}',4231315272);
INSERT INTO "events" VALUES(51539607553,1750000001000000,1,X'01977420DFE870018867E2C200000001','','','{"workflow_name":"greet","inputs":{"name":"Ada"},"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}',1238070452);
INSERT INTO "events" VALUES(51539607554,1750000002000000,53,X'01977420E3D070018867E2C200000002','','','{"queue":"labels","priority":3}',760110061);
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
    , token INTEGER NOT NULL DEFAULT 0, checksum INTEGER NOT NULL DEFAULT 0, wake_at INTEGER, taken INTEGER NOT NULL DEFAULT 0, durability TEXT NOT NULL DEFAULT 'full', start_key TEXT, origin TEXT NOT NULL DEFAULT 'run', parent TEXT, tags TEXT NOT NULL DEFAULT '[]', note TEXT, notebook TEXT, cell TEXT, seal INTEGER, opened INTEGER NOT NULL DEFAULT 1, source_key INTEGER, forked_at INTEGER);
INSERT INTO "executions" VALUES(1,'exec_01jxt21q04e008000000000004','greet','completed',5,240,1750000001000000,NULL,1750000005000000,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,2330473194,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,3881905772,1,NULL,NULL);
INSERT INTO "executions" VALUES(2,'exec_01jxt21q05e008000000000005','greet','running',4,395,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,1,3431300703,NULL,0,'full','monday','fork','exec_01jxt21q04e008000000000004','["nightly","ü"]','as agreed','a.ipynb','c1',3268950491,1,NULL,NULL);
INSERT INTO "executions" VALUES(3,'exec_01jxt21q06e008000000000006','greet','failed',6,240466,1750000001000000,NULL,1750000006000000,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','no such file',0,2087784394,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,4125018699,1,NULL,NULL);
INSERT INTO "executions" VALUES(4,'exec_01jxt21q07e008000000000007','greet','waiting',5,330,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,3278420297,1750003600000000,2,'full',NULL,'run',NULL,'["nightly","nightly"]',NULL,'a.ipynb','c2',955279085,1,NULL,NULL);
INSERT INTO "executions" VALUES(5,'exec_01jxt21q08e008000000000008','greet','failed',5,293,1750000001000000,NULL,1750000005000000,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','no such file',0,3849227801,NULL,0,'full',NULL,'run',NULL,'["weekly"]',NULL,NULL,NULL,2858521434,1,NULL,NULL);
INSERT INTO "executions" VALUES(6,'exec_01jxt21q09e008000000000009','greet','running',6,346,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,2985462395,NULL,0,'full',NULL,'child','exec_01jxt21q07e008000000000007','[]',NULL,NULL,NULL,3491222288,1,NULL,NULL);
INSERT INTO "executions" VALUES(7,'exec_01jxt21q1xe00800000000001x','greet','completed',9,629,1750000001000000,NULL,1750000009000000,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,3311354343,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,2764239081,1,NULL,NULL);
INSERT INTO "executions" VALUES(8,'exec_01jxt21q1ye00800000000001y','greet','waiting',6,100504,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,1,1525409315,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,492942017,1,NULL,NULL);
INSERT INTO "executions" VALUES(9,'exec_01jxt21q1ze00800000000001z','greet','running',38,5368,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,854762024,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,817206740,1,NULL,NULL);
INSERT INTO "executions" VALUES(10,'exec_01jxt21q01e0080000000000zz','greet','running',9,1655,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,27358686,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,1466937317,1,NULL,NULL);
INSERT INTO "executions" VALUES(11,'exec_01jxt21q2te00800000000002t','greet','running',8,232,1750000007000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,4231315272,NULL,0,'full',NULL,'fork','exec_01jxt21q01e0080000000000zz','[]',NULL,NULL,NULL,868568011,7,10,6);
INSERT INTO "executions" VALUES(12,'exec_01jxt21q2de00800000000002d','greet','enqueued',2,161,1750000001000000,NULL,NULL,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL,0,760110061,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,2468799176,1,NULL,NULL);
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
INSERT INTO "leases" VALUES(2,'host',1,2,'name','boot',1750000033000000,3639952745);
INSERT INTO "leases" VALUES(8,'host',1,2,'name','boot',1750000034000000,27240589678);
CREATE TABLE messages (
      number    INTEGER PRIMARY KEY AUTOINCREMENT,
      key       INTEGER NOT NULL,  -- executions.key
      kind      TEXT NOT NULL,     -- answer, signal
      name      TEXT NOT NULL,     -- of the question, or the signal's own
      payload   TEXT NOT NULL,     -- JSON
      source    TEXT NOT NULL,
      posted_at INTEGER NOT NULL, checksum INTEGER, untaken INTEGER NOT NULL DEFAULT 0,
      UNIQUE (key, kind, name)
    );
INSERT INTO "messages" VALUES(1,2,'answer','question_1','{"response":true}','ada@host',1750000000000000,3293939634,1);
INSERT INTO "messages" VALUES(2,4,'signal','sig_1','{"n":1}','ada@host',1750000000000000,4262547284,0);
INSERT INTO "messages" VALUES(3,4,'signal','sig_2','{"n":2}','ada@host',1750000000000000,3991925928,1);
INSERT INTO "messages" VALUES(4,5,'answer','question_2','{"response":"x"}','ada@host',1750000000000000,1478363799,0);
CREATE TABLE questions (
      key INTEGER NOT NULL,  -- executions.key
      id  TEXT NOT NULL, is_over INTEGER NOT NULL DEFAULT 0,
      PRIMARY KEY (id, key)
    ) WITHOUT ROWID
    ;
INSERT INTO "questions" VALUES(2,'question_1',0);
INSERT INTO "questions" VALUES(4,'question_2',0);
INSERT INTO "questions" VALUES(5,'question_2',1);
INSERT INTO "questions" VALUES(6,'question_2',0);
CREATE TABLE queued (
      key      INTEGER PRIMARY KEY,  -- executions.key
      queue    TEXT NOT NULL,
      priority INTEGER NOT NULL,
      withheld INTEGER NOT NULL      -- 1 while workers leave it alone: a person has paused it, or it has ended
    );
INSERT INTO "queued" VALUES(12,'labels',3,0);
CREATE TABLE schedules (id TEXT PRIMARY KEY, seen INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE summaries (
      key      INTEGER PRIMARY KEY,  -- executions.key
      sequence INTEGER NOT NULL,     -- of the last event in the fold
      checksum INTEGER NOT NULL,     -- of data
      data     BLOB NOT NULL
    );
CREATE TABLE tags (
      tag   TEXT NOT NULL,
      began INTEGER NOT NULL,  -- executions.created_at
      key   INTEGER NOT NULL,  -- executions.key
      PRIMARY KEY (tag, began, key)
    ) WITHOUT ROWID
    ;
INSERT INTO "tags" VALUES('nightly',1750000001000000,2);
INSERT INTO "tags" VALUES('ü',1750000001000000,2);
INSERT INTO "tags" VALUES('nightly',1750000001000000,4);
INSERT INTO "tags" VALUES('weekly',1750000001000000,5);
CREATE TABLE workers (
      id         TEXT PRIMARY KEY,
      expires_at INTEGER NOT NULL,
      data       TEXT NOT NULL  -- JSON
    ) WITHOUT ROWID
    ;
CREATE UNIQUE INDEX executions_by_start_key ON executions (start_key) WHERE start_key IS NOT NULL;
CREATE INDEX executions_by_age ON executions (created_at);
CREATE INDEX questions_by_execution ON questions (key);
CREATE INDEX executions_by_status ON executions (status, created_at);
CREATE INDEX executions_by_workflow ON executions (workflow_name, created_at);
CREATE INDEX executions_by_workflow_status ON executions (workflow_name, status, created_at);
CREATE INDEX executions_by_origin ON executions (origin, created_at);
CREATE INDEX executions_by_parent ON executions (parent, created_at) WHERE parent IS NOT NULL;
CREATE INDEX executions_by_notebook ON executions (notebook, created_at) WHERE notebook IS NOT NULL;
CREATE INDEX executions_by_cell ON executions (cell, created_at) WHERE cell IS NOT NULL;
CREATE INDEX executions_to_wake ON executions (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX tags_by_execution ON tags (key);
CREATE INDEX messages_untaken ON messages (key) WHERE untaken;
CREATE INDEX messages_by_name ON messages (name, kind);
CREATE INDEX questions_open ON questions (id, key) WHERE NOT is_over;
CREATE INDEX executions_by_source ON executions (source_key, forked_at) WHERE source_key IS NOT NULL;
CREATE VIEW log AS
    WITH RECURSIVE parts (id, key, upto) AS (
      SELECT id, key, 4294967295 FROM executions
      UNION ALL
      SELECT parts.id, above.source_key, min(above.forked_at, upto) FROM parts
      JOIN executions AS above ON above.key = parts.key WHERE above.source_key IS NOT NULL
    )
    SELECT parts.id AS execution_id, (events.place & 4294967295) + fact.key AS sequence, events.recorded_at,
      fact.value AS event_type, events.path,
      CASE WHEN instr(event_types.name, '+') AND substr(fact.value, 1, 5) = 'path_' AND fact.value <> 'path_branched'
        THEN '' ELSE events.step END AS step,
      CASE WHEN instr(event_types.name, '+') AND events.data LIKE '[%'
        THEN json_extract(events.data, '$[' || fact.key || ']') ELSE events.data END AS data
    FROM parts
    JOIN events ON events.place BETWEEN parts.key << 32 AND parts.key << 32 | upto
    JOIN event_types ON event_types.number = events.type
    JOIN json_each('["' || replace(event_types.name, '+', '","') || '"]') AS fact;
CREATE INDEX queued_by_queue ON queued (queue, priority DESC, key) WHERE NOT withheld;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('messages',4);
COMMIT;
