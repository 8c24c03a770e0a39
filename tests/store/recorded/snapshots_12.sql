PRAGMA application_id = 1684633189;
PRAGMA user_version = 12;
BEGIN TRANSACTION;
CREATE TABLE blob_uses (
      key  INTEGER NOT NULL,  -- executions.key
      blob INTEGER NOT NULL,  -- blobs.number
      PRIMARY KEY (key, blob)
    ) WITHOUT ROWID
    ;
CREATE TABLE blobs (
      number     INTEGER PRIMARY KEY,
      digest     BLOB NOT NULL UNIQUE,  -- SHA-256 of the content
      compressed INTEGER NOT NULL,      -- 1: zlib
      data       BLOB NOT NULL
    );
CREATE TABLE checkpoints (
      key      INTEGER NOT NULL,  -- executions.key
      sequence INTEGER NOT NULL,  -- of the last event in the fold
      checksum INTEGER NOT NULL,  -- of data and of the log up to there
      data     BLOB NOT NULL,
      PRIMARY KEY (key, sequence)
    ) WITHOUT ROWID
    ;
INSERT INTO "checkpoints" VALUES(1,31,2664513839,X'480D6D544D939B2018FE2B0EBD7A004D44BCF4D2CEF4D873B3190715779944B080C9A63BF9EF7D4077B7DDF61281F783E7E3252FE4A29CD7D69046E464947DF0A43914342FAA634E7C904191E685A867D52F0169AD1E4893B62D65534DEBE959F6A313FEB23F7971A557E57705C9C9D5BAD378B6D7D6C8091D8853BD75831A10F20A9F8674BC144341052BC65208DE2172D6A3EA6FFD3916CCBA0F8B5338D5665E12AAC3313F1C81EA229D96DD5945A4F1EC406667B19F48427D20BD5D0C2AF2821E63FE2CC353CC7D2109FC24B5415BB34C9D72A4A139E917E79409AD0F6AC6D5D29F224C705F5046DC628C368F389A9FA48FD8B459538158FAB7B2746B2A54736B97F08A7AC383C8A7CC34197B300F86D1F89BF6455C15EFFB32EE4B4A807C65ABBD5EE993CED993027686D08A32ADB68BD9076D40CCCE488FF699E06EED1FBA2116C9B6E136AF8482726E9903B9E7B171A4DBB0A4810B6A68A30E8C8B7D49F73B5AD68CED587D87B22B7DF57351A6479F122598207DC13A2EDF1B69B35D903C8B917628AA8E8B4E2ACEC78E179CE49B3FFF0F12808A63D39FE1FEA87B19A7119AE26E9F960DF966AFD924CDED73B40A9E237BF3FA2F639DD4FE1F4EA2DCEFC50E732B7548EC0F6BEDF11E551D71A4DCEC40034D4BC9391583D8EF445553B1AF79A746551474180BD6D7B41C59C76557D161A05C49CCB9E855CD2863DD40E528D38CC8FF08CB4B5E083C4365F0523E88FE0A3049BEF951E1F5705EB17A57951C6EA8012893DFCE5997A4A650553EC27FE07E1D1F02AF2DF288EF9D9E43F6F6B833CC8B4BC266A3D468D76CDF2CD82D4B656B5193FD50CE7ED1174CA7355F63C3261BB66DD6DDB25F088368BAEA75CCBE3BDB2BEF21662A4038E809F6C909CFEE7DBE40B5AC28848FC3688C8D7F42432B41A164381AF4382ABC57B4C2A33EDE7F0395358636');
INSERT INTO "checkpoints" VALUES(2,18,702169084,X'7B2276657273696F6E223A392C226661637473223A5B5D2C227374617465223A7B22657865637574696F6E5F6964223A22657865635F30316A7874323171303066377276717962636332667373783735222C22776F726B666C6F775F6E616D65223A22736372697074222C2273656564223A2239346237633365626366626262313064222C226C6966656379636C65223A2270696374757265222C22696E70757473223A5B5B5B226E222C335D5D2C5B5D5D2C227661726961626C6573223A5B5B5B2262222C385D2C5B2261222C31315D5D2C5B5D5D2C227061746873223A5B7B226964223A226D61696E222C226E756D626572223A302C2263757272656E745F73746570223A2274776F222C22737461747573223A22636F6D706C65746564222C227068617365223A22656E646564222C226C656674223A22726F7574696E67222C226C6173745F73746570223A2274776F222C22737465705F6F757470757473223A5B5B5B2274776F222C2238225D2C5B226F6E65222C2234225D5D2C5B5D5D2C22766973697473223A5B5B2274776F222C315D2C5B226F6E65222C315D5D2C22737461727465645F7573223A313735303030303030303030303030302C22656E6465645F7573223A313735303030303030303030303030307D5D2C226C6173745F73657175656E6365223A31382C2266696E6765727072696E74223A2265376463643033623130656463643861623137613162663435326437616561373033323764383462306430356566333363336231343939643534356239313934222C22737461727465645F7573223A313735303030303030303030303030302C22656E6465645F7573223A313735303030303030303030303030302C226C6173745F7573223A313735303030303030303030303030307D2C22646966666572656E636573223A5B5D7D');
INSERT INTO "checkpoints" VALUES(3,47,635765848,X'480D6D544D93DB2810FD2B2AF6AA0348B26474C9255BB5C79C63BB5C486A4D284BA000B2C771F9BFEF037B924CCD5C249A86A6DF07DCD8999CD7D6B056E66C547DF0ACDD153C2FEABC947955E55573C8990F2A106B6F8C5EA95F03D61FF5C0DA141EB998B73F9753598F74EDCF1755775B7AFD75A6F32BCBD9C5BAD338D9CBD1A8191598A3DEBA8106A43CE1D7B2AE29E55070298AB194B2E99099F448FDB59FE286DECECB4421EDD066595383BB43BE3BA02FBB86BF66764C4D138B1DC7DC5939ADBA8922A0DD8ECDCA5C517AB4AB634863667116E999012B62E6F58B51D85ECA18F57635382A2F788C1E75AB547751E147AC79638982596983BA669D3B72ACE539EB57E7C884A30FB400009904160CAED8F60ECFF243F988114B12BE89C680D00196362F9108E53FD4A1E5F817ECDDB3FE6E9FA0ED599E099E6750302BF981C5E62F4A07D4BAED5977DDB336C3DF767B764F49E54FBF5979838D897F32D366626FF646F0F84D711147C59FB88C71C9139D8971EDF5431ED6397B22F02262038981347AB49286E9E0344A54C7A510ED92B6B545B29C83EAC7489A68E4A6E49B8A975B212AB1CD1F8CBDCF559CCBA2AAEFA8F2A08D7EAE647AF05B3539D3269073EBF2EC0FA71F87A2EE1AD9296A9AB16B8A86E54F493F4FB2938692107082B146DDAB780D40154EF169D8B2FFEC258B3EFB82E96813AC7EDAE3E98507DB4E69FF01992C371B593DAE5A328A236FA773F205868B35D12A3716E8357A24F9F89E3365FC851CAA7557CC2A133BF214C2F4F1804D59D4A02E6A10DDD5C63B01EF1EEE91F81153E416079E50A7544DC3E5203795ACB75C6EB64D472315051FC642F45B5E8EA26B5457F361E00D29DC60D9D3567021BA81AB51C52682FA44BFA66C0A89972639FEA37EB5402EA9F74EF6286D4A2D6A7D63AE16650D5D81137DA7A7C939EBD265E71052BDE00A02C99B1119D4B758C77CEFF412B2DF0F5966177249CB6C541AE5DAE73F0BF6B98AB2C7A636FB4ECE7ED567F8DC9A7F63C1361B9E61D65DB35F48037A3AEA18AE4BBCDBDF9CEDC97BD09B36201DF40CC7A8198FC31F6343FEB2E690029A3A523EBEC8EFDE8AA0E2856A0BE4073D8ED01CDE8E700FF7FF019018CFD0');
CREATE TABLE event_types (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO "event_types" VALUES(1,'execution_started');
INSERT INTO "event_types" VALUES(2,'execution_forked');
INSERT INTO "event_types" VALUES(3,'execution_resumed');
INSERT INTO "event_types" VALUES(4,'execution_paused');
INSERT INTO "event_types" VALUES(5,'execution_enqueued');
INSERT INTO "event_types" VALUES(6,'execution_completed');
INSERT INTO "event_types" VALUES(7,'rollback_started');
INSERT INTO "event_types" VALUES(8,'execution_failed');
INSERT INTO "event_types" VALUES(9,'execution_cancelled');
INSERT INTO "event_types" VALUES(10,'execution_continue_as_new');
INSERT INTO "event_types" VALUES(11,'execution_moved');
INSERT INTO "event_types" VALUES(12,'execution_pictured');
INSERT INTO "event_types" VALUES(13,'path_started');
INSERT INTO "event_types" VALUES(14,'path_branched');
INSERT INTO "event_types" VALUES(15,'path_waiting');
INSERT INTO "event_types" VALUES(16,'path_joined');
INSERT INTO "event_types" VALUES(17,'path_completed');
INSERT INTO "event_types" VALUES(18,'path_failed');
INSERT INTO "event_types" VALUES(19,'path_cancelled');
INSERT INTO "event_types" VALUES(20,'step_started');
INSERT INTO "event_types" VALUES(21,'step_completed');
INSERT INTO "event_types" VALUES(22,'rollback_added');
INSERT INTO "event_types" VALUES(23,'step_failed');
INSERT INTO "event_types" VALUES(24,'step_retried');
INSERT INTO "event_types" VALUES(25,'step_caught');
INSERT INTO "event_types" VALUES(26,'condition_evaluated');
INSERT INTO "event_types" VALUES(27,'iteration_started');
INSERT INTO "event_types" VALUES(28,'iteration_completed');
INSERT INTO "event_types" VALUES(29,'iteration_failed');
INSERT INTO "event_types" VALUES(30,'rows_completed');
INSERT INTO "event_types" VALUES(31,'operation_started');
INSERT INTO "event_types" VALUES(32,'operation_completed');
INSERT INTO "event_types" VALUES(33,'operations_abandoned');
INSERT INTO "event_types" VALUES(34,'operation_failed');
INSERT INTO "event_types" VALUES(35,'time_accessed');
INSERT INTO "event_types" VALUES(36,'random_generated');
INSERT INTO "event_types" VALUES(37,'version_decision');
INSERT INTO "event_types" VALUES(38,'interrupt_raised');
INSERT INTO "event_types" VALUES(39,'interrupt_joined');
INSERT INTO "event_types" VALUES(40,'interrupt_resolved');
INSERT INTO "event_types" VALUES(41,'interrupt_expired');
INSERT INTO "event_types" VALUES(42,'state_mutated');
INSERT INTO "event_types" VALUES(43,'event_emitted');
INSERT INTO "event_types" VALUES(44,'approval_rule_added');
INSERT INTO "event_types" VALUES(45,'execution_annotated');
INSERT INTO "event_types" VALUES(46,'workspace_opened');
INSERT INTO "event_types" VALUES(47,'files_changed');
INSERT INTO "event_types" VALUES(48,'egress_answered');
INSERT INTO "event_types" VALUES(49,'approval_rule_revoked');
INSERT INTO "event_types" VALUES(50,'signal_received');
CREATE TABLE events (
      place       INTEGER PRIMARY KEY,
      recorded_at INTEGER NOT NULL,
      type        INTEGER NOT NULL,  -- event_types.number
      id          BLOB NOT NULL,     -- 16 bytes of the UUIDv7 in event_..., or another id as text
      path        TEXT NOT NULL,
      step        TEXT NOT NULL,
      data        TEXT NOT NULL      -- JSON
    , checksum INTEGER);
INSERT INTO "events" VALUES(4294967297,1795305403737299,1,X'01A2008A755970CA99CA756E8C843400','','','{"workflow_name":"recorded","inputs":{},"definition":{"name":"recorded","outputs":[{"name":"all"}],"steps":[{"name":"count","type":"script","script":"n * 10","store":"counts","each":{"items":[1,2,3],"as_":"n"},"edges":[{"step":"broken"}]},{"name":"broken","type":"script","script":"1 / 0","edges":[{"step":"ask"}],"catch":[{"step":"ask","store":"problem"}]},{"name":"ask","type":"interrupt","store":"many","edges":[{"step":"wait"}],"ask":{"question":"How many?"}},{"name":"wait","type":"wait","store":"signal","edges":[{"step":"end"}],"signal":"go"},{"name":"end","type":"script","script":"[state.many, *state.counts]","store":"all","edges":[]}]},"fingerprint":"3a7709d95496809587befe220df21c803f1b7ab60dd07ea7399ce81011bd0afa","written_by":"0.1.0","origin":"import","seed":"b739d20912f3997b"}',190481191);
INSERT INTO "events" VALUES(4294967298,1795305403811418,13,X'01A2008A75A3782FA8A79B0BC98C8000','main','','{"current_step":"count"}',1588995241);
INSERT INTO "events" VALUES(4294967299,1795305403822211,20,X'01A2008A75AE74AC9259AA9A97FF9800','main','count','{"step_type":"script","visit":1}',3237280354);
INSERT INTO "events" VALUES(4294967300,1795305403822421,27,X'01A2008A75AE74AC9259AA9A97FF9801','main','count','{"iteration_index":0,"item":1}',3567445582);
INSERT INTO "events" VALUES(4294967301,1795305403822440,42,X'01A2008A75AE74AC9259AA9A97FF9802','main','count','{"mutations":[{"type":"set","key":"n","value":1}]}',216599817);
INSERT INTO "events" VALUES(4294967302,1795305403822628,31,X'01A2008A75AE74AC9259AA9A97FF9803','main','count','{"operation_id":"op_3e8739976a6fe12912d4e546735acf1f","operation_type":"script_execution","parameters":{"script":"n * 10"},"parameters_hash":"0d6b0cf5373d09f4","iteration_index":0,"key":"script"}',4160798971);
INSERT INTO "events" VALUES(4294967303,1795305403920481,32,X'01A2008A7610782CB0A52C0CB7C38000','main','count','{"operation_id":"op_3e8739976a6fe12912d4e546735acf1f","operation_type":"script_execution","duration":92638000,"result":10}',154315155);
INSERT INTO "events" VALUES(4294967304,1795305403920715,28,X'01A2008A7610782CB0A52C0CB7C38001','main','count','{"iteration_index":0,"result":{"text":"10","value":10}}',3879280557);
INSERT INTO "events" VALUES(4294967305,1795305403920744,27,X'01A2008A7610782CB0A52C0CB7C38002','main','count','{"iteration_index":1,"item":2}',2784662744);
INSERT INTO "events" VALUES(4294967306,1795305403920762,42,X'01A2008A7610782CB0A52C0CB7C38003','main','count','{"mutations":[{"type":"set","key":"n","value":2}]}',2217066644);
INSERT INTO "events" VALUES(4294967307,1795305403920915,31,X'01A2008A7610782CB0A52C0CB7C38004','main','count','{"operation_id":"op_5d551bc4b2912969d6a41a441f56a3f7","operation_type":"script_execution","parameters":{"script":"n * 10"},"parameters_hash":"0d6b0cf5373d09f4","iteration_index":1,"key":"script"}',4114377357);
INSERT INTO "events" VALUES(4294967308,1795305403924367,32,X'01A2008A76147393BAD2EF5305230000','main','count','{"operation_id":"op_5d551bc4b2912969d6a41a441f56a3f7","operation_type":"script_execution","duration":3220000,"result":20}',2357878214);
INSERT INTO "events" VALUES(4294967309,1795305403924449,28,X'01A2008A76147393BAD2EF5305230001','main','count','{"iteration_index":1,"result":{"text":"20","value":20}}',1332070960);
INSERT INTO "events" VALUES(4294967310,1795305403924468,27,X'01A2008A76147393BAD2EF5305230002','main','count','{"iteration_index":2,"item":3}',526537885);
INSERT INTO "events" VALUES(4294967311,1795305403924478,42,X'01A2008A76147393BAD2EF5305230003','main','count','{"mutations":[{"type":"set","key":"n","value":3}]}',153734234);
INSERT INTO "events" VALUES(4294967312,1795305403924602,31,X'01A2008A76147393BAD2EF5305230004','main','count','{"operation_id":"op_2613efc2a8a04f6da09eeb682dced352","operation_type":"script_execution","parameters":{"script":"n * 10"},"parameters_hash":"0d6b0cf5373d09f4","iteration_index":2,"key":"script"}',3099048690);
INSERT INTO "events" VALUES(4294967313,1795305403929172,32,X'01A2008A76197984BF5649B177D8DC00','main','count','{"operation_id":"op_2613efc2a8a04f6da09eeb682dced352","operation_type":"script_execution","duration":4403000,"result":30}',3966033056);
INSERT INTO "events" VALUES(4294967314,1795305403929251,28,X'01A2008A76197984BF5649B177D8DC01','main','count','{"iteration_index":2,"result":{"text":"30","value":30}}',3466769449);
INSERT INTO "events" VALUES(4294967315,1795305403929275,42,X'01A2008A76197984BF5649B177D8DC02','main','count','{"mutations":[{"type":"delete","key":"n"}]}',273834521);
INSERT INTO "events" VALUES(4294967316,1795305403929322,42,X'01A2008A76197984BF5649B177D8DC03','main','count','{"mutations":[{"type":"set","key":"counts","value":[10,20,30]}]}',1908926983);
INSERT INTO "events" VALUES(4294967317,1795305403929341,21,X'01A2008A76197984BF5649B177D8DC04','main','count','{"output":"# n: 1\n\n10\n\n# n: 2\n\n20\n\n# n: 3\n\n30","stored_variable":"counts"}',4110558960);
INSERT INTO "events" VALUES(4294967318,1795305403929384,20,X'01A2008A76197984BF5649B177D8DC05','main','broken','{"step_type":"script","visit":1}',695771044);
INSERT INTO "events" VALUES(4294967319,1795305403929486,31,X'01A2008A76197984BF5649B177D8DC06','main','broken','{"operation_id":"op_be7b5052128e57085eef4ef88e7fc8e5","operation_type":"script_execution","parameters":{"script":"1 / 0"},"parameters_hash":"30322897247e78f6","key":"script"}',485214930);
INSERT INTO "events" VALUES(4294967320,1795305403935138,34,X'01A2008A761F722B8E5170C3D6D3C800','main','broken','{"operation_id":"op_be7b5052128e57085eef4ef88e7fc8e5","operation_type":"script_execution","duration":5396000,"error":"ZeroDivisionError: division by zero","error_names":["ScriptError","DivebookError","Exception"],"raised":{"types":["divebook.errors:ScriptError","divebook.errors:DivebookError"],"args":["ZeroDivisionError: division by zero"],"fields":{"line":1}}}',1882042910);
INSERT INTO "events" VALUES(4294967321,1795305403935360,23,X'01A2008A761F722B8E5170C3D6D3C801','main','broken','{"error":"script execution operation failed: failed to execute script: ZeroDivisionError: division by zero"}',7384368);
INSERT INTO "events" VALUES(4294967322,1795305403935394,42,X'01A2008A761F722B8E5170C3D6D3C802','main','broken','{"mutations":[{"type":"set","key":"problem","value":{"type":"MontyRuntimeError","message":"script execution operation failed: failed to execute script: ZeroDivisionError: division by zero","step":"broken","attempts":1}}]}',3496303249);
INSERT INTO "events" VALUES(4294967323,1795305403935406,25,X'01A2008A761F722B8E5170C3D6D3C803','main','broken','{"target":"ask","error":"script execution operation failed: failed to execute script: ZeroDivisionError: division by zero"}',630329864);
INSERT INTO "events" VALUES(4294967324,1795305403935445,20,X'01A2008A761F722B8E5170C3D6D3C804','main','ask','{"step_type":"interrupt","visit":1}',4281899481);
INSERT INTO "events" VALUES(4294967325,1795305403935594,38,X'01A2008A761F722B8E5170C3D6D3C805','main','ask','{"interrupt_id":"ask_d26b79bae77fb727","kind":"clarification","question":"How many?"}',2162027993);
INSERT INTO "events" VALUES(4294967326,1795305403935594,12,X'01A2008A761F7618839E9BDF9DE5A8A0','','','{"status":"waiting"}',809555239);
INSERT INTO "events" VALUES(4294967327,1796091776184637,45,X'01A22F698CB877D0BA7F6794BC4F5C00','','','{"tags":["kept"],"note":"look here","by":"ann"}',3354914146);
INSERT INTO "events" VALUES(8589934593,1750000000000000,1,X'01977420DC00758A82700AC78A54E800','','','{"workflow_name":"script","inputs":{"n":3},"definition":{"name":"script","inputs":[{"name":"n"}],"steps":[{"name":"one","type":"script","script":"inputs.n + 1","store":"a","edges":[{"step":"two"}]},{"name":"two","type":"script","script":"state.a * 2","store":"b","edges":[]}],"source":"Name: script\nInputs:\n- Name: n\nSteps:\n- Name: one\n  Script: inputs.n + 1\n  Store: a\n- Name: two\n  Script: state.a * 2\n  Store: b\n"},"fingerprint":"e7dcd03b10edcd8ab17a1bf452d7aea70327d84b0d05ef33c3b1499d545b9194","source":"Name: script\nInputs:\n- Name: n\nSteps:\n- Name: one\n  Script: inputs.n + 1\n  Store: a\n- Name: two\n  Script: state.a * 2\n  Store: b\n","written_by":"0.1.0","origin":"import","seed":"94b7c3ebcfbbb10d"}',2258519799);
INSERT INTO "events" VALUES(8589934594,1750000000000000,13,X'01977420DC00758A82700AC78A54E801','main','','{"current_step":"one"}',4247571205);
INSERT INTO "events" VALUES(8589934595,1750000000000000,20,X'01977420DC00758A82700AC78A54E802','main','one','{"step_type":"script","visit":1}',3080687818);
INSERT INTO "events" VALUES(8589934596,1750000000000000,31,X'01977420DC00758A82700AC78A54E803','main','one','{"operation_id":"op_0419a32f730684874f872b926b3ce244","operation_type":"script_execution","parameters":{"script":"inputs.n + 1"},"parameters_hash":"ea166c5c0a241cdc","key":"script"}',90341260);
INSERT INTO "events" VALUES(8589934597,1750000000000000,32,X'01977420DC00758A82700AC78A54E804','main','one','{"operation_id":"op_0419a32f730684874f872b926b3ce244","operation_type":"script_execution","duration":0,"result":4}',1810947271);
INSERT INTO "events" VALUES(8589934598,1750000000000000,42,X'01977420DC00758A82700AC78A54E805','main','one','{"mutations":[{"type":"set","key":"a","value":4}]}',2783484105);
INSERT INTO "events" VALUES(8589934599,1750000000000000,21,X'01977420DC00758A82700AC78A54E806','main','one','{"output":"4","stored_variable":"a"}',827647339);
INSERT INTO "events" VALUES(8589934600,1750000000000000,20,X'01977420DC00758A82700AC78A54E807','main','two','{"step_type":"script","visit":1}',1564012677);
INSERT INTO "events" VALUES(8589934601,1750000000000000,31,X'01977420DC00758A82700AC78A54E808','main','two','{"operation_id":"op_93a31d0b8267a5a3ba71a1442415ab59","operation_type":"script_execution","parameters":{"script":"state.a * 2"},"parameters_hash":"fb42f707edb7c7e3","key":"script"}',1918685431);
INSERT INTO "events" VALUES(8589934602,1750000000000000,32,X'01977420DC00758A82700AC78A54E809','main','two','{"operation_id":"op_93a31d0b8267a5a3ba71a1442415ab59","operation_type":"script_execution","duration":0,"result":8}',2916122691);
INSERT INTO "events" VALUES(8589934603,1750000000000000,42,X'01977420DC00758A82700AC78A54E80A','main','two','{"mutations":[{"type":"set","key":"b","value":8}]}',462939028);
INSERT INTO "events" VALUES(8589934604,1750000000000000,21,X'01977420DC00758A82700AC78A54E80B','main','two','{"output":"8","stored_variable":"b"}',3161094728);
INSERT INTO "events" VALUES(8589934605,1750000000000000,17,X'01977420DC00758A82700AC78A54E80C','main','','{"final_step":"two"}',1324479495);
INSERT INTO "events" VALUES(8589934606,1750000000000000,2,X'01977420DC007807B51E19609A116000','','','{"source":"exec_01jxt21q00fzm9398cqmvr7zsp","at":13,"workflow_name":"script","previous":1,"change":{"variables":{"a":9}},"origin":"fork","fingerprint":"e7dcd03b10edcd8ab17a1bf452d7aea70327d84b0d05ef33c3b1499d545b9194","written_by":"0.1.0"}',3714657492);
INSERT INTO "events" VALUES(8589934607,1750000000000000,3,X'01977420DC007401891883A2D0CB4C00','','','{"previous_status":"running"}',2571176709);
INSERT INTO "events" VALUES(8589934608,1750000000000000,2,X'01977420DC0076C2BAC870D5BE457800','','','{"source":"exec_01jxt21q00f95ttzvwebnzstv6","at":15,"workflow_name":"script","previous":14,"change":{"variables":{"a":11}},"origin":"fork","fingerprint":"e7dcd03b10edcd8ab17a1bf452d7aea70327d84b0d05ef33c3b1499d545b9194","written_by":"0.1.0"}',4260891996);
INSERT INTO "events" VALUES(8589934609,1750000000000000,3,X'01977420DC00743A97D787C569864C00','','','{"previous_status":"running"}',4166503932);
INSERT INTO "events" VALUES(8589934610,1750000000000000,12,X'01977420DC00740CB287AAAB2DB67CD6','','','{"status":"running"}',681043798);
INSERT INTO "events" VALUES(12884901889,1795305403737299,1,X'01A2008A755971AC82124B553EC03293','','','{"workflow_name":"recorded","inputs":{},"definition":{"name":"recorded","outputs":[{"name":"all"}],"steps":[{"name":"count","type":"script","script":"n * 10","store":"counts","each":{"items":[1,2,3],"as_":"n"},"edges":[{"step":"broken"}]},{"name":"broken","type":"script","script":"1 / 0","edges":[{"step":"ask"}],"catch":[{"step":"ask","store":"problem"}]},{"name":"ask","type":"interrupt","store":"many","edges":[{"step":"wait"}],"ask":{"question":"How many?"}},{"name":"wait","type":"wait","store":"signal","edges":[{"step":"end"}],"signal":"go"},{"name":"end","type":"script","script":"[state.many, *state.counts]","store":"all","edges":[]}]},"fingerprint":"3a7709d95496809587befe220df21c803f1b7ab60dd07ea7399ce81011bd0afa","written_by":"0.1.0","seed":"b739d20912f3997b"}',1188438022);
INSERT INTO "events" VALUES(12884901890,1795305403811418,13,X'01A2008A75A37D41B4CED4FBC081DE06','main','','{"current_step":"count"}',3903367395);
INSERT INTO "events" VALUES(12884901891,1795305403822211,20,X'01A2008A75AE7B138EFDB1515B6A7431','main','count','{"step_type":"script","visit":1}',3324757945);
INSERT INTO "events" VALUES(12884901892,1795305403822421,27,X'01A2008A75AE75A7BDFEDB45D1CCCB36','main','count','{"iteration_index":0,"item":1}',3736209074);
INSERT INTO "events" VALUES(12884901893,1795305403822440,42,X'01A2008A75AE75B89FAB6053C1909098','main','count','{"mutations":[{"type":"set","key":"n","value":1}]}',2847487710);
INSERT INTO "events" VALUES(12884901894,1795305403822628,31,X'01A2008A75AE7FACBD94D1D9D4C93065','main','count','{"operation_id":"op_3e8739976a6fe12912d4e546735acf1f","operation_type":"script_execution","parameters":{"script":"n * 10"},"parameters_hash":"0d6b0cf5373d09f4","iteration_index":0,"key":"script"}',2685651132);
INSERT INTO "events" VALUES(12884901895,1795305403920481,32,X'01A2008A761074C888666711025EFD8D','main','count','{"operation_id":"op_3e8739976a6fe12912d4e546735acf1f","operation_type":"script_execution","duration":92638000,"result":10}',1182283411);
INSERT INTO "events" VALUES(12884901896,1795305403920715,28,X'01A2008A761071FC8111B5DC032C0DC0','main','count','{"iteration_index":0,"result":{"text":"10","value":10}}',1788686830);
INSERT INTO "events" VALUES(12884901897,1795305403920744,27,X'01A2008A7610757E8FD5ABFB3DA4B7E6','main','count','{"iteration_index":1,"item":2}',2825615243);
INSERT INTO "events" VALUES(12884901898,1795305403920762,42,X'01A2008A76107650A62FBC0FEBCEB799','main','count','{"mutations":[{"type":"set","key":"n","value":2}]}',1932863410);
INSERT INTO "events" VALUES(12884901899,1795305403920915,31,X'01A2008A76107A3896B40D3E9362AD95','main','count','{"operation_id":"op_5d551bc4b2912969d6a41a441f56a3f7","operation_type":"script_execution","parameters":{"script":"n * 10"},"parameters_hash":"0d6b0cf5373d09f4","iteration_index":1,"key":"script"}',1134102811);
INSERT INTO "events" VALUES(12884901900,1795305403924367,32,X'01A2008A76147AA0A0D35E5F1C2EF801','main','count','{"operation_id":"op_5d551bc4b2912969d6a41a441f56a3f7","operation_type":"script_execution","duration":3220000,"result":20}',477887862);
INSERT INTO "events" VALUES(12884901901,1795305403924449,28,X'01A2008A76147E6D8D9D831297BEF3C4','main','count','{"iteration_index":1,"result":{"text":"20","value":20}}',3677980616);
INSERT INTO "events" VALUES(12884901902,1795305403924468,27,X'01A2008A76147888A0781A9660A943C7','main','count','{"iteration_index":2,"item":3}',2655173006);
INSERT INTO "events" VALUES(12884901903,1795305403924478,42,X'01A2008A76147EECBE28BF11945B5EFE','main','count','{"mutations":[{"type":"set","key":"n","value":3}]}',2510833274);
INSERT INTO "events" VALUES(12884901904,1795305403924602,31,X'01A2008A761478238DF1FD9F709F14EC','main','count','{"operation_id":"op_2613efc2a8a04f6da09eeb682dced352","operation_type":"script_execution","parameters":{"script":"n * 10"},"parameters_hash":"0d6b0cf5373d09f4","iteration_index":2,"key":"script"}',1010854562);
INSERT INTO "events" VALUES(12884901905,1795305403929172,32,X'01A2008A76197095B029E661B345124B','main','count','{"operation_id":"op_2613efc2a8a04f6da09eeb682dced352","operation_type":"script_execution","duration":4403000,"result":30}',4245457343);
INSERT INTO "events" VALUES(12884901906,1795305403929251,28,X'01A2008A7619748B873301718C9B8179','main','count','{"iteration_index":2,"result":{"text":"30","value":30}}',2526836020);
INSERT INTO "events" VALUES(12884901907,1795305403929275,42,X'01A2008A76197771B83E14BBA3207C22','main','count','{"mutations":[{"type":"delete","key":"n"}]}',3217791504);
INSERT INTO "events" VALUES(12884901908,1795305403929322,42,X'01A2008A7619789A8602C668184B735F','main','count','{"mutations":[{"type":"set","key":"counts","value":[10,20,30]}]}',2495906200);
INSERT INTO "events" VALUES(12884901909,1795305403929341,21,X'01A2008A76197A25A4DE52499E67D878','main','count','{"output":"# n: 1\n\n10\n\n# n: 2\n\n20\n\n# n: 3\n\n30","stored_variable":"counts"}',3213113965);
INSERT INTO "events" VALUES(12884901910,1795305403929384,20,X'01A2008A7619774880E6BCA6E7E809D7','main','broken','{"step_type":"script","visit":1}',1762146414);
INSERT INTO "events" VALUES(12884901911,1795305403929486,31,X'01A2008A761972A084BF612E043A12BE','main','broken','{"operation_id":"op_be7b5052128e57085eef4ef88e7fc8e5","operation_type":"script_execution","parameters":{"script":"1 / 0"},"parameters_hash":"30322897247e78f6","key":"script"}',2354357938);
INSERT INTO "events" VALUES(12884901912,1795305403935138,34,X'01A2008A761F763EA088467F33D17662','main','broken','{"operation_id":"op_be7b5052128e57085eef4ef88e7fc8e5","operation_type":"script_execution","duration":5396000,"error":"ZeroDivisionError: division by zero","error_names":["ScriptError","DivebookError","Exception"],"raised":{"types":["divebook.errors:ScriptError","divebook.errors:DivebookError"],"args":["ZeroDivisionError: division by zero"],"fields":{"line":1}}}',1635319426);
INSERT INTO "events" VALUES(12884901913,1795305403935360,23,X'01A2008A761F77B0AD57EA73B8063EE7','main','broken','{"error":"script execution operation failed: failed to execute script: ZeroDivisionError: division by zero"}',1813013704);
INSERT INTO "events" VALUES(12884901914,1795305403935394,42,X'01A2008A761F7EF993D23AC8E8D633FF','main','broken','{"mutations":[{"type":"set","key":"problem","value":{"type":"MontyRuntimeError","message":"script execution operation failed: failed to execute script: ZeroDivisionError: division by zero","step":"broken","attempts":1}}]}',3222173255);
INSERT INTO "events" VALUES(12884901915,1795305403935406,25,X'01A2008A761F7D289F3945717E3AF2CE','main','broken','{"target":"ask","error":"script execution operation failed: failed to execute script: ZeroDivisionError: division by zero"}',1163556292);
INSERT INTO "events" VALUES(12884901916,1795305403935445,20,X'01A2008A761F73E094573E86755095FA','main','ask','{"step_type":"interrupt","visit":1}',2060265984);
INSERT INTO "events" VALUES(12884901917,1795305403935594,38,X'01A2008A761F79DDA15CFAA03E274A64','main','ask','{"interrupt_id":"ask_d26b79bae77fb727","kind":"clarification","question":"How many?"}',1754563737);
INSERT INTO "events" VALUES(12884901918,1795305403952714,3,X'01A2008A76307AC9BAF11039B790672C','','','{"previous_status":"waiting"}',1692886562);
INSERT INTO "events" VALUES(12884901919,1795305403953268,40,X'01A2008A76317093AEF62F508B6D16BA','main','ask','{"interrupt_id":"ask_d26b79bae77fb727","response":{"text":"four"},"answered_by":"ann","message":1}',1314991548);
INSERT INTO "events" VALUES(12884901920,1795305403953722,42,X'01A2008A7631711FADC5372BE6A4C4CD','main','ask','{"mutations":[{"type":"set","key":"many","value":"four"}]}',1588123234);
INSERT INTO "events" VALUES(12884901921,1795305403953750,21,X'01A2008A7631785F81FB8039331E473D','main','ask','{"output":"four","stored_variable":"many"}',2567993851);
INSERT INTO "events" VALUES(12884901922,1795305403953783,20,X'01A2008A763176AC8364AD0E5CBC2778','main','wait','{"step_type":"wait","visit":1}',3564210841);
INSERT INTO "events" VALUES(12884901923,1795305403954138,31,X'01A2008A76327C798D47C5651147EA35','main','wait','{"operation_id":"op_4cc71a7bc2914aacb5e5549399eac596","operation_type":"signal_wait","parameters":{"signal":"go","seconds":null},"parameters_hash":"d599b01f21128354","key":1,"name":"go"}',123802418);
INSERT INTO "events" VALUES(12884901924,1795305403997831,3,X'01A2008A765D76F19041D60A5F6C9EF7','','','{"previous_status":"waiting"}',3354706032);
INSERT INTO "events" VALUES(12884901925,1795305403998186,50,X'01A2008A765E72198234FF3CE5B7E5A2','','','{"signal_type":"go","payload":{"by":"bob"},"source":"bob event_0000000000eas9ebmk3aytyd00","message":2}',3551386597);
INSERT INTO "events" VALUES(12884901926,1795305403998517,32,X'01A2008A765E78618B3DF0261ABE0BE4','main','wait','{"operation_id":"op_4cc71a7bc2914aacb5e5549399eac596","operation_type":"signal_wait","duration":44371000,"result":{"by":"bob"}}',2880283639);
INSERT INTO "events" VALUES(12884901927,1795305403998595,42,X'01A2008A765E7823B2867EB9F682C4CF','main','wait','{"mutations":[{"type":"set","key":"signal","value":{"by":"bob"}}]}',4018866556);
INSERT INTO "events" VALUES(12884901928,1795305403998617,21,X'01A2008A765E70268ABC937F93A82479','main','wait','{"output":"{\"by\": \"bob\"}","stored_variable":"signal"}',4026494387);
INSERT INTO "events" VALUES(12884901929,1795305403998650,20,X'01A2008A765E7D2EAFEBB1B6A7E166F1','main','end','{"step_type":"script","visit":1}',3518645401);
INSERT INTO "events" VALUES(12884901930,1795305403998736,31,X'01A2008A765E78D7BF8243CDAD050387','main','end','{"operation_id":"op_150ecb5f26626e97fc908b7a1ca33202","operation_type":"script_execution","parameters":{"script":"[state.many, *state.counts]"},"parameters_hash":"b3de86845da7dacf","key":"script"}',3892684414);
INSERT INTO "events" VALUES(12884901931,1795305404009053,32,X'01A2008A7669702392628876F4F039B7','main','end','{"operation_id":"op_150ecb5f26626e97fc908b7a1ca33202","operation_type":"script_execution","duration":10180000,"result":["four",10,20,30]}',3498380960);
INSERT INTO "events" VALUES(12884901932,1795305404009185,42,X'01A2008A76697261948131ABCE02E2F5','main','end','{"mutations":[{"type":"set","key":"all","value":["four",10,20,30]}]}',2029443684);
INSERT INTO "events" VALUES(12884901933,1795305404009209,21,X'01A2008A766972318998CE01CED6069D','main','end','{"output":"[\"four\", 10, 20, 30]","stored_variable":"all"}',3940193177);
INSERT INTO "events" VALUES(12884901934,1795305404009246,17,X'01A2008A76697E48AA8AFC0FB7F15DE2','main','','{"final_step":"end"}',3605453614);
INSERT INTO "events" VALUES(12884901935,1795305404009619,6,X'01A2008A76697B88BBE5A930BB719EEF','','','{"outputs":{"all":["four",10,20,30]}}',1709316356);
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
INSERT INTO "executions" VALUES(1,'exec_01m808mxacfr9sv5ks9w0wes42','recorded','picture',31,3602,1795305403737299,NULL,1795305403935594,'3a7709d95496809587befe220df21c803f1b7ab60dd07ea7399ce81011bd0afa',NULL,1,3354914146,NULL,0,'full',NULL,'import',NULL,'["kept"]','look here',NULL,NULL,414979548,1,NULL,NULL);
INSERT INTO "executions" VALUES(2,'exec_01jxt21q00f7rvqybcc2fssx75','script','picture',18,2150,1750000000000000,NULL,1750000000000000,'e7dcd03b10edcd8ab17a1bf452d7aea70327d84b0d05ef33c3b1499d545b9194',NULL,0,681043798,NULL,0,'full',NULL,'fork','exec_01jxt21q00f95ttzvwebnzstv6','[]',NULL,NULL,NULL,1595085770,16,NULL,NULL);
INSERT INTO "executions" VALUES(3,'exec_01m8qpk36feycvwa6b8exzvevx','recorded','completed',47,4891,1795305403737299,NULL,1795305404009619,'3a7709d95496809587befe220df21c803f1b7ab60dd07ea7399ce81011bd0afa',NULL,0,1709316356,NULL,0,'full',NULL,'run',NULL,'[]',NULL,NULL,NULL,1349938335,1,NULL,NULL);
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
CREATE TABLE questions (
      key INTEGER NOT NULL,  -- executions.key
      id  TEXT NOT NULL, is_over INTEGER NOT NULL DEFAULT 0,
      PRIMARY KEY (id, key)
    ) WITHOUT ROWID
    ;
INSERT INTO "questions" VALUES(1,'ask_d26b79bae77fb727',1);
CREATE TABLE queued (
      key      INTEGER PRIMARY KEY,  -- executions.key
      queue    TEXT NOT NULL,
      priority INTEGER NOT NULL,
      withheld INTEGER NOT NULL      -- 1 while workers leave it alone: a person has paused it, or it has ended
    );
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
INSERT INTO "tags" VALUES('kept',1795305403737299,1);
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
COMMIT;
