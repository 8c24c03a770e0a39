SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA divebook;
CREATE FUNCTION divebook.commit_batches(_heads json, _relaxed boolean, _now bigint, _batches integer[], _sequences bigint[], _times bigint[], _types integer[], _ids bytea[], _paths text[], _steps text[], _data bytea[], _checksums bigint[], _users integer[], _digests bytea[], _compressed boolean[], _contents bytea[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
  head record;
  entered bigint;
  has_unread boolean;
  keys bigint[] := '{}';
  skew bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '2s', true);
  IF _relaxed THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  IF cardinality(_digests) > 0 THEN
    PERFORM pg_advisory_xact_lock_shared(1684633190);
  END IF;
  FOR head IN SELECT * FROM json_to_recordset(_heads) AS given(
    key bigint, known_seal bigint, known_token bigint, before bigint,
    id text, status text, created_at bigint, ended_at bigint, last_sequence bigint, error text, size bigint,
    wake_at bigint, taken bigint, durability text, workflow_name text, fingerprint text, start_key text, origin text,
    parent text, tags jsonb, note text, notebook text, cell text, opened bigint, seal bigint, checksum bigint,
    token bigint, source_key bigint, forked_at bigint, source_place bigint,
    host text, pid bigint, started bigint, owner text, boot text, expires_at bigint,
    is_over boolean, asked json, settled json, queue text, priority bigint, withheld boolean, last_message bigint
  ) LOOP
    entered := NULL;
    has_unread := false;
    IF head.last_message IS NOT NULL THEN
      PERFORM FROM divebook.executions WHERE key = head.key FOR UPDATE;
      has_unread := EXISTS (SELECT FROM divebook.messages WHERE key = head.key AND number > head.last_message);
    END IF;
    IF head.key IS NOT NULL THEN
      UPDATE divebook.executions SET
        status = head.status, ended_at = head.ended_at, last_sequence = head.last_sequence, error = head.error,
        size = head.size, wake_at = head.wake_at, taken = head.taken, tags = head.tags, note = head.note,
        seal = head.seal, checksum = head.checksum
      WHERE key = head.key AND seal = head.known_seal AND token = head.known_token AND checksum = head.before
        AND NOT has_unread
      RETURNING key INTO entered;
    ELSE
      IF head.source_key IS NOT NULL THEN
        PERFORM FROM divebook.executions WHERE key = head.source_key FOR KEY SHARE;
        PERFORM FROM divebook.events WHERE place = head.source_place AND checksum = head.before;
      END IF;
      IF head.source_key IS NULL OR FOUND THEN
        INSERT INTO divebook.executions (
          id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability, workflow_name,
          fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal, checksum, token, source_key,
          forked_at
        ) VALUES (
          head.id, head.status, head.created_at, head.ended_at, head.last_sequence, head.error, head.size, head.wake_at,
          head.taken, head.durability, head.workflow_name, head.fingerprint, head.start_key, head.origin, head.parent,
          head.tags, head.note, head.notebook, head.cell, head.opened, head.seal, head.checksum, head.token,
          head.source_key, head.forked_at
        ) ON CONFLICT DO NOTHING RETURNING key INTO entered;
      END IF;
      IF entered IS NOT NULL AND head.host IS NOT NULL THEN
        -- Leases end by the server's clock. Two clocks that agree to two seconds are the same.
        skew := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - _now;
        IF abs(skew) < 2000000 THEN
          skew := 0;
        END IF;
        INSERT INTO divebook.leases
        VALUES (entered, head.host, head.pid, head.started, head.owner, head.boot, head.expires_at + skew);
      END IF;
    END IF;
    keys := keys || coalesce(entered, 0);
    IF entered IS NOT NULL THEN
      IF head.is_over THEN
        DELETE FROM divebook.leases WHERE key = entered;
      END IF;
      IF head.asked IS NOT NULL THEN
        INSERT INTO divebook.questions SELECT entered, json_array_elements_text(head.asked) ON CONFLICT DO NOTHING;
      END IF;
      IF head.settled IS NOT NULL THEN
        DELETE FROM divebook.questions
        WHERE key = entered AND id IN (SELECT json_array_elements_text(head.settled));
      END IF;
      IF head.queue IS NOT NULL THEN
        INSERT INTO divebook.queued VALUES (entered, head.queue, head.priority, coalesce(head.withheld, false))
        ON CONFLICT (key) DO UPDATE
        SET queue = excluded.queue, priority = excluded.priority, withheld = excluded.withheld;
        PERFORM pg_notify('divebook', '');
      ELSIF head.withheld IS NOT NULL THEN
        UPDATE divebook.queued SET withheld = head.withheld WHERE key = entered;
      END IF;
      IF head.key IS NOT NULL THEN
        PERFORM FROM divebook.followers WHERE key = entered AND until > clock_timestamp();
        IF FOUND THEN
          PERFORM pg_notify('divebook', entered::text);
        END IF;
      END IF;
    END IF;
  END LOOP;
  INSERT INTO divebook.events (place, recorded_at, type, id, path, step, data, checksum)
  SELECT keys[batch] << 32 | sequence, recorded_at, type, id, path, step, data, checksum
  FROM unnest(_batches, _sequences, _times, _types, _ids, _paths, _steps, _data, _checksums)
    AS given(batch, sequence, recorded_at, type, id, path, step, data, checksum)
  WHERE keys[batch] <> 0;
  IF cardinality(_digests) > 0 THEN
    INSERT INTO divebook.blobs (digest, compressed, data)
    SELECT DISTINCT ON (digest) digest, compressed, data
    FROM unnest(_users, _digests, _compressed, _contents) AS given(batch, digest, compressed, data)
    WHERE keys[batch] <> 0 ORDER BY digest
    ON CONFLICT (digest) DO NOTHING;
    INSERT INTO divebook.blob_uses (key, digest)
    SELECT keys[batch], digest FROM unnest(_users, _digests) AS given(batch, digest) WHERE keys[batch] <> 0
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN keys;
END
$$;
CREATE FUNCTION divebook.commit_batches_carrying_on(_relaxed boolean, _keys bigint[], _known_seals bigint[], _known_tokens bigint[], _befores bigint[], _statuses text[], _lasts bigint[], _sizes bigint[], _taken bigint[], _seals bigint[], _afters bigint[], _batches integer[], _sequences bigint[], _times bigint[], _types integer[], _ids bytea[], _paths text[], _steps text[], _data bytea[], _checksums bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
  entered bigint[];
BEGIN
  PERFORM set_config('lock_timeout', '2s', true);
  IF _relaxed THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  WITH carried_on AS (
    UPDATE divebook.executions AS own SET
      status = given.status, last_sequence = given.last, size = given.size, wake_at = NULL, taken = given.taken,
      seal = given.seal, checksum = given.after
    FROM unnest(
      _keys, _known_seals, _known_tokens, _befores, _statuses, _lasts, _sizes, _taken, _seals, _afters
    ) AS given(key, known_seal, known_token, before, status, last, size, taken, seal, after)
    WHERE own.key = given.key AND own.seal = given.known_seal AND own.token = given.known_token
      AND own.checksum = given.before
    RETURNING own.key AS key
  ), written AS (
    INSERT INTO divebook.events (place, recorded_at, type, id, path, step, data, checksum)
    SELECT key << 32 | sequence, recorded_at, type, id, path, step, data, checksum
    FROM unnest(_batches, _sequences, _times, _types, _ids, _paths, _steps, _data, _checksums)
      AS given(batch, sequence, recorded_at, type, id, path, step, data, checksum)
    JOIN carried_on ON key = _keys[batch]
  ), told AS (
    SELECT pg_notify('divebook', key::text) FROM carried_on
    WHERE EXISTS (SELECT FROM divebook.followers WHERE followers.key = carried_on.key AND until > clock_timestamp())
  )
  SELECT array_agg(key), (SELECT count(*) FROM told) INTO entered FROM carried_on;
  RETURN entered;
END
$$;
CREATE FUNCTION divebook.post_message(_id text, _place bytea, _kind text, _name text, _payload bytea, _source text, _posted_at bigint, _checksum bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
  found_key bigint;
  found_status text;
  found_number bigint;
BEGIN
  PERFORM set_config('lock_timeout', '2s', true);
  SELECT key, status INTO found_key, found_status FROM divebook.executions WHERE id = _id FOR KEY SHARE;
  IF found_key IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT number INTO found_number FROM divebook.messages WHERE key = found_key AND place = _place;
  IF found_number IS NULL AND found_status IN ('completed', 'moved', 'continued_as_new', 'picture') THEN
    RETURN 0;
  END IF;
  IF found_number IS NULL THEN
    UPDATE divebook.last_message SET number = number + 1;
    INSERT INTO divebook.messages
    SELECT number, found_key, _place, _kind, _name, _payload, _source, _posted_at, _checksum FROM divebook.last_message
    ON CONFLICT (key, place) DO NOTHING RETURNING number INTO found_number;
    PERFORM pg_notify('divebook', '');
    IF found_number IS NULL THEN
      SELECT number INTO found_number FROM divebook.messages WHERE key = found_key AND place = _place;
    END IF;
  END IF;
  RETURN found_number;
END
$$;
CREATE FUNCTION divebook.read_log(_id text, _after bigint, _upto bigint) RETURNS TABLE(owner bigint, sequence bigint, recorded_at bigint, type integer, id bytea, path text, step text, data bytea, checksum bigint)
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_column
DECLARE
  head record;
  owners bigint[];
  befores bigint[];
  uptos bigint[];
  nearest bigint;
BEGIN
  SELECT key, last_sequence, executions.checksum, source_key, forked_at INTO head
  FROM divebook.executions WHERE executions.id = _id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  owners := ARRAY[head.key];
  befores := ARRAY[coalesce(head.forked_at, 0)];
  uptos := ARRAY[4294967295];
  IF head.source_key IS NOT NULL THEN
    WITH RECURSIVE sources (key, upto, depth) AS (
      SELECT head.source_key, head.forked_at, 1
      UNION ALL
      SELECT above.source_key, above.forked_at, depth + 1
      FROM sources JOIN divebook.executions AS above ON above.key = sources.key
      WHERE above.source_key IS NOT NULL AND above.forked_at < upto
    ), parts AS (
      SELECT key, coalesce(lag(upto) OVER (ORDER BY depth DESC), 0) AS before, upto, depth FROM sources
    )
    SELECT array_agg(key ORDER BY depth DESC) || owners, array_agg(before ORDER BY depth DESC) || befores,
      array_agg(upto ORDER BY depth DESC) || uptos
    INTO owners, befores, uptos FROM parts;
  END IF;
  RETURN QUERY SELECT head.key, 0::bigint, head.last_sequence, NULL::integer, NULL::bytea, NULL::text, NULL::text,
    NULL::bytea, head.checksum;
  IF _after > 0 THEN
    SELECT min(sequence) INTO nearest FROM (
      SELECT place & 4294967295 AS sequence FROM unnest(owners, befores, uptos) AS part(key, before, upto)
      CROSS JOIN LATERAL (
        SELECT place FROM divebook.events
        WHERE place > (part.key << 32 | before) AND place <= (part.key << 32 | least(upto, _after + 1))
        ORDER BY place DESC LIMIT 2
      ) AS latest ORDER BY sequence DESC LIMIT 2
    ) AS around;
  END IF;
  FOR part IN 1..cardinality(owners) LOOP
    RETURN QUERY SELECT owners[part], place & 4294967295, events.recorded_at, events.type, events.id, events.path,
      events.step, events.data, events.checksum
    FROM divebook.events
    WHERE place > (owners[part] << 32 | greatest(befores[part], coalesce(nearest, 1) - 1))
      AND place <= (owners[part] << 32 | least(uptos[part], _upto))
    ORDER BY place;
  END LOOP;
END
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE divebook.blob_uses (
    key bigint NOT NULL,
    digest bytea NOT NULL
);
CREATE TABLE divebook.blobs (
    digest bytea NOT NULL,
    compressed boolean NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY divebook.blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE divebook.checkpoints (
    key bigint NOT NULL,
    sequence bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE divebook.event_types (
    number integer NOT NULL,
    name text NOT NULL
);
ALTER TABLE divebook.event_types ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME divebook.event_types_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE divebook.events (
    place bigint NOT NULL,
    recorded_at bigint NOT NULL,
    checksum bigint NOT NULL,
    type integer NOT NULL,
    id bytea NOT NULL,
    path text NOT NULL,
    step text NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE divebook.executions (
    key bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    last_sequence bigint NOT NULL,
    error text,
    size bigint NOT NULL,
    wake_at bigint,
    taken bigint NOT NULL,
    durability text NOT NULL,
    workflow_name text NOT NULL,
    fingerprint text,
    start_key text,
    origin text NOT NULL,
    parent text,
    tags jsonb NOT NULL,
    note text,
    notebook text,
    cell text,
    opened bigint NOT NULL,
    seal bigint NOT NULL,
    checksum bigint NOT NULL,
    token bigint NOT NULL,
    source_key bigint,
    forked_at bigint
)
WITH (fillfactor='70');
ALTER TABLE divebook.executions ALTER COLUMN key ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME divebook.executions_key_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE divebook.followers (
    key bigint NOT NULL,
    follower bytea NOT NULL,
    until timestamp with time zone NOT NULL
);
CREATE TABLE divebook.format (
    number integer NOT NULL
);
CREATE TABLE divebook.last_message (
    number bigint NOT NULL
);
CREATE TABLE divebook.leases (
    key bigint NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    started bigint NOT NULL,
    name text NOT NULL,
    boot text NOT NULL,
    expires_at bigint NOT NULL
);
CREATE VIEW divebook.log AS
 WITH RECURSIVE parts(id, key, upto) AS (
         SELECT executions.id,
            executions.key,
            '4294967295'::bigint AS "?column?"
           FROM divebook.executions
        UNION ALL
         SELECT parts_1.id,
            above.source_key,
            LEAST(above.forked_at, parts_1.upto) AS "least"
           FROM (parts parts_1
             JOIN divebook.executions above ON ((above.key = parts_1.key)))
          WHERE (above.source_key IS NOT NULL)
        )
 SELECT parts.id AS execution_id,
    (events.place & '4294967295'::bigint) AS sequence,
    to_timestamp((((events.recorded_at)::numeric / '1000000'::numeric))::double precision) AS at,
    event_types.name AS event_types,
    events.path,
    events.step,
        CASE
            WHEN (get_byte(events.data, 0) = ANY (ARRAY[91, 123])) THEN convert_from(events.data, 'UTF8'::name)
            ELSE NULL::text
        END AS data
   FROM ((parts
     JOIN divebook.events ON (((events.place >= (parts.key << 32)) AND (events.place <= ((parts.key << 32) | parts.upto)))))
     JOIN divebook.event_types ON ((event_types.number = events.type)));
CREATE TABLE divebook.messages (
    number bigint NOT NULL,
    key bigint NOT NULL,
    place bytea NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    payload bytea NOT NULL,
    source text NOT NULL,
    posted_at bigint NOT NULL,
    checksum bigint NOT NULL
);
CREATE TABLE divebook.questions (
    key bigint NOT NULL,
    id text NOT NULL
);
CREATE TABLE divebook.queued (
    key bigint NOT NULL,
    queue text NOT NULL,
    priority bigint NOT NULL,
    withheld boolean NOT NULL
);
CREATE TABLE divebook.schedules (
    id text NOT NULL,
    seen bigint NOT NULL
);
CREATE TABLE divebook.summaries (
    key bigint NOT NULL,
    sequence bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE divebook.workers (
    id text NOT NULL,
    expires_at bigint NOT NULL,
    data text NOT NULL
);
INSERT INTO divebook.checkpoints VALUES (3, 47, 828585947, '\x480d6d544b93db2810fe2b2af6aa03422fa34b2ebb5539e6bcb6cb85a4d684b2040aa0f1785dfeeffb813d49a6261789a6a1e9ef0137f64ace6b6b58277336a92178d6ed05cf45939732afaabc6a8f39f3410562dd8dd11b0d5bc0fa931e5997c2132f96dd8ff55cbf19bad6ee2c9b8acecd55ecce23cbd9c5baf334dbcbc9a8051598a3c1ba9162ca137e1debdb528e82cb424ca5946d8fccac271aaec31c370c7659670a698736eb961adc1ff3fd117dd92dfc36b3676a9e59ec38e65e95d3aa9f2902daefd9a2cc15a527bb398634665667915e18b022665ebf1885eda58cd1603783a372c163f4a85ba5baab0adf63cd1b4b142c4a1bd435dbd293631dcfd9b03947269c7ca01500c824b06070c3b60f78d6efca478c5892f0cd3405840eb0b479894428ffa90eada7df60ef9ff5f78704edc0f2ace0790605b3921f596cfea27440addb81f5d703eb32fc6d7f60f79454fefc939577d898f82b335d561cccc1143c7e532ce248fc8acb18973cd19918d75e3fe461bdb367022f456c203190468f56d2301d9c4689eab814a25dd2b64e24cb39a87e8aa415adac4b5e57bcdc154555ecf207631f7315e75254cd1d551eb4d18f8dcc007eab3667da04726e5b9ffde1f4d3289abe95bda2b69dfa56b42c7f4afae7243b6b28090167186bd2838ad70054e1149f861dfb6a2f59f4d9174c479b60f5d31e4f2f3cd8764afb4fc86459d7b27a5cb5641447deceafc91718aed644abdc58a0b7e891e4e37bce94f11772a8d65f31ab4cecc85308f3e703ea5234a02e6a10ddd5c53b01ef1eef91f80953e456079e50a7546dcbe528eb4a363b2eeb5ddbd34442f07112c5b0e3e554f4adea1b3e8ebc25851b2c07da15bc28fa91ab49c52682fa837e6dd90a89972639feb37e4d815c52ef83ec51da945ad5f6ce5c53940d74054ef49d9e26e7ac4b979d4348f5822b0824ef466450df621df383d36bc87e3e64995dc9252db3496994eb9eff2cd8e72aca1e9bbaec5f72f66ffd0a9f5bf34f2cd865e333ccfa6bf61fd2809e8e3a85eb1aeff6376707f21ef4a60d4807bdc0316ac1e3f0cbd890bf6c38a480a68e948f2ff287b722a878a13a81fca8a7099ac3db11eef1fe3fa769cee8');
INSERT INTO divebook.checkpoints VALUES (1, 31, 1771541713, '\x480d6d544d939b2018fe2b0ebd7a008d41bcf4d2cef4d873b3190715779944b080c9a63bf9ef7d4077b7ddf61281f783e7e3252fe4a29cd7d69046e464947df0a43914342ff6c79cf8208322cd0b51cfaa5f02d25a3d90266d5bcaa69ad6d3b3ec4727fca53a7971a557e57705c9c9d5bad378b6d7d6c8091d8853bd75831a10f20a9f8674bc144341052bc65208de2172d6a3ea6ffd3916ccba0f8b5338d5665e12aac3313f1c81ea229d96dd5945a4f1ec406667b19f48427d20bd5d0c2af2821e63fe2cc353cc7d2109fc24b5415bb34c9d72a4a139e917e79409ad0f6ac6d5d29f224c705f5046dc628c368f389a9fa48fd8b459538158fab7b2746b2a54736b97f08a7ac383c8a7cc34197b300f86d1f89bf6455c15effb32ee4b4a807c65abbd5ee993ced993027686d08a32adb68bd9076d40ccce488ff699e06eed1fba2116c9b6e136af8482726e9903b9e7b171a4dbb0a4810b6a68a30e8c8baaa4d58e9635633b56dfa1ec4a5ffd5c94e9d1a7440926485fb08ecbf746da6c1724cf62a41d8a7dc7452715e763c70b4ef2cd9fff070940c5b1e9cf707fd4bd8cd3084d71b74fcb867cb3d76c92e6f6395a05cf91bd79fd97b14e6aff0f27515695d8616ea50e89fd61ad3ddea3aa238e949b1d68a0692939a76210d54eec6b2aaa9a776a54454187b1607d4dcb91755c767b3a0c942b893917bdaa1965ac1ba81c659a11f91f6179c90b8167a80c5eca07d15f0126c9373ff6783d9cd7a206f80a6ea8012893dfce5997a4a650553ec27fe07e1d1f02af2df288ef9d9e43f6f6b833cc8b4bc266a3d468d76cdf2cd82d4b656b5193fd50ce7ed1174ca7355f63c3261bb66dd6ddb25f088368baea75ccbe3bdb2bef21662a4038e809f6c909cfee7dbe40b5dc53081f87d1181bff8486568242c97034e8715478af6885477dbcff069d36863e');
INSERT INTO divebook.checkpoints VALUES (2, 18, 1122616300, '\x7b2276657273696f6e223a392c226661637473223a5b5d2c227374617465223a7b22657865637574696f6e5f6964223a22657865635f30316a7874323171303066377276717962636332667373783735222c22776f726b666c6f775f6e616d65223a22736372697074222c2273656564223a2239346237633365626366626262313064222c226c6966656379636c65223a2270696374757265222c22696e70757473223a5b5b5b226e222c335d5d2c5b5d5d2c227661726961626c6573223a5b5b5b2262222c385d2c5b2261222c31315d5d2c5b5d5d2c227061746873223a5b7b226964223a226d61696e222c226e756d626572223a302c2263757272656e745f73746570223a2274776f222c22737461747573223a22636f6d706c65746564222c227068617365223a22656e646564222c226c656674223a22726f7574696e67222c226c6173745f73746570223a2274776f222c22737465705f6f757470757473223a5b5b5b2274776f222c2238225d2c5b226f6e65222c2234225d5d2c5b5d5d2c22766973697473223a5b5b2274776f222c315d2c5b226f6e65222c315d5d2c22737461727465645f7573223a313735303030303030303030303030302c22656e6465645f7573223a313735303030303030303030303030307d5d2c226c6173745f73657175656e6365223a31382c2266696e6765727072696e74223a2265376463643033623130656463643861623137613162663435326437616561373033323764383462306430356566333363336231343939643534356239313934222c22737461727465645f7573223a313735303030303030303030303030302c22656e6465645f7573223a313735303030303030303030303030302c226c6173745f7573223a313735303030303030303030303030307d2c22646966666572656e636573223a5b5d7d');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (1, 'approval_rule_added');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (2, 'approval_rule_revoked');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (3, 'condition_evaluated');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (4, 'egress_answered');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (5, 'event_emitted');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (6, 'execution_annotated');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (7, 'execution_cancelled');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (8, 'execution_completed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (9, 'execution_continue_as_new');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (10, 'execution_enqueued');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (11, 'execution_failed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (12, 'execution_forked');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (13, 'execution_moved');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (14, 'execution_paused');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (15, 'execution_pictured');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (16, 'execution_resumed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (17, 'execution_started');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (18, 'files_changed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (19, 'interrupt_expired');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (20, 'interrupt_joined');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (21, 'interrupt_raised');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (22, 'interrupt_resolved');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (23, 'iteration_completed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (24, 'iteration_failed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (25, 'iteration_started');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (26, 'operation_completed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (27, 'operation_failed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (28, 'operation_started');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (29, 'operations_abandoned');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (30, 'path_branched');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (31, 'path_cancelled');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (32, 'path_completed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (33, 'path_failed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (34, 'path_joined');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (35, 'path_started');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (36, 'path_waiting');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (37, 'random_generated');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (38, 'rollback_added');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (39, 'rollback_started');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (40, 'rows_completed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (41, 'signal_received');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (42, 'state_mutated');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (43, 'step_caught');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (44, 'step_completed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (45, 'step_failed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (46, 'step_retried');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (47, 'step_started');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (48, 'time_accessed');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (49, 'version_decision');
INSERT INTO divebook.event_types OVERRIDING SYSTEM VALUE VALUES (50, 'workspace_opened');
INSERT INTO divebook.events VALUES (4294967297, 1795305403737299, 190481191, 17, '\x01a2008a755970ca99ca756e8c843400', '', '', '\x7b22776f726b666c6f775f6e616d65223a227265636f72646564222c22696e70757473223a7b7d2c22646566696e6974696f6e223a7b226e616d65223a227265636f72646564222c226f757470757473223a5b7b226e616d65223a22616c6c227d5d2c227374657073223a5b7b226e616d65223a22636f756e74222c2274797065223a22736372697074222c22736372697074223a226e202a203130222c2273746f7265223a22636f756e7473222c2265616368223a7b226974656d73223a5b312c322c335d2c2261735f223a226e227d2c226564676573223a5b7b2273746570223a2262726f6b656e227d5d7d2c7b226e616d65223a2262726f6b656e222c2274797065223a22736372697074222c22736372697074223a2231202f2030222c226564676573223a5b7b2273746570223a2261736b227d5d2c226361746368223a5b7b2273746570223a2261736b222c2273746f7265223a2270726f626c656d227d5d7d2c7b226e616d65223a2261736b222c2274797065223a22696e74657272757074222c2273746f7265223a226d616e79222c226564676573223a5b7b2273746570223a2277616974227d5d2c2261736b223a7b227175657374696f6e223a22486f77206d616e793f227d7d2c7b226e616d65223a2277616974222c2274797065223a2277616974222c2273746f7265223a227369676e616c222c226564676573223a5b7b2273746570223a22656e64227d5d2c227369676e616c223a22676f227d2c7b226e616d65223a22656e64222c2274797065223a22736372697074222c22736372697074223a225b73746174652e6d616e792c202a73746174652e636f756e74735d222c2273746f7265223a22616c6c222c226564676573223a5b5d7d5d7d2c2266696e6765727072696e74223a2233613737303964393534393638303935383762656665323230646632316338303366316237616236306464303765613733393963653831303131626430616661222c227772697474656e5f6279223a22302e312e30222c226f726967696e223a22696d706f7274222c2273656564223a2262373339643230393132663339393762227d');
INSERT INTO divebook.events VALUES (4294967298, 1795305403811418, 1588995241, 35, '\x01a2008a75a3782fa8a79b0bc98c8000', 'main', '', '\x7b2263757272656e745f73746570223a22636f756e74227d');
INSERT INTO divebook.events VALUES (4294967299, 1795305403822211, 3237280354, 47, '\x01a2008a75ae74ac9259aa9a97ff9800', 'main', 'count', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (4294967300, 1795305403822421, 3567445582, 25, '\x01a2008a75ae74ac9259aa9a97ff9801', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a302c226974656d223a317d');
INSERT INTO divebook.events VALUES (4294967301, 1795305403822440, 216599817, 42, '\x01a2008a75ae74ac9259aa9a97ff9802', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226e222c2276616c7565223a317d5d7d');
INSERT INTO divebook.events VALUES (4294967302, 1795305403822628, 4160798971, 28, '\x01a2008a75ae74ac9259aa9a97ff9803', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3365383733393937366136666531323931326434653534363733356163663166222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a226e202a203130227d2c22706172616d65746572735f68617368223a2230643662306366353337336430396634222c22697465726174696f6e5f696e646578223a302c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (4294967303, 1795305403920481, 154315155, 26, '\x01a2008a7610782cb0a52c0cb7c38000', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3365383733393937366136666531323931326434653534363733356163663166222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a39323633383030302c22726573756c74223a31307d');
INSERT INTO divebook.events VALUES (4294967304, 1795305403920715, 3879280557, 23, '\x01a2008a7610782cb0a52c0cb7c38001', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a302c22726573756c74223a7b2274657874223a223130222c2276616c7565223a31307d7d');
INSERT INTO divebook.events VALUES (4294967305, 1795305403920744, 2784662744, 25, '\x01a2008a7610782cb0a52c0cb7c38002', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a312c226974656d223a327d');
INSERT INTO divebook.events VALUES (4294967306, 1795305403920762, 2217066644, 42, '\x01a2008a7610782cb0a52c0cb7c38003', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226e222c2276616c7565223a327d5d7d');
INSERT INTO divebook.events VALUES (4294967307, 1795305403920915, 4114377357, 28, '\x01a2008a7610782cb0a52c0cb7c38004', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3564353531626334623239313239363964366134316134343166353661336637222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a226e202a203130227d2c22706172616d65746572735f68617368223a2230643662306366353337336430396634222c22697465726174696f6e5f696e646578223a312c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (4294967308, 1795305403924367, 2357878214, 26, '\x01a2008a76147393bad2ef5305230000', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3564353531626334623239313239363964366134316134343166353661336637222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a333232303030302c22726573756c74223a32307d');
INSERT INTO divebook.events VALUES (4294967309, 1795305403924449, 1332070960, 23, '\x01a2008a76147393bad2ef5305230001', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a312c22726573756c74223a7b2274657874223a223230222c2276616c7565223a32307d7d');
INSERT INTO divebook.events VALUES (4294967310, 1795305403924468, 526537885, 25, '\x01a2008a76147393bad2ef5305230002', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a322c226974656d223a337d');
INSERT INTO divebook.events VALUES (4294967311, 1795305403924478, 153734234, 42, '\x01a2008a76147393bad2ef5305230003', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226e222c2276616c7565223a337d5d7d');
INSERT INTO divebook.events VALUES (4294967312, 1795305403924602, 3099048690, 28, '\x01a2008a76147393bad2ef5305230004', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3236313365666332613861303466366461303965656236383264636564333532222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a226e202a203130227d2c22706172616d65746572735f68617368223a2230643662306366353337336430396634222c22697465726174696f6e5f696e646578223a322c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (4294967313, 1795305403929172, 3966033056, 26, '\x01a2008a76197984bf5649b177d8dc00', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3236313365666332613861303466366461303965656236383264636564333532222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a343430333030302c22726573756c74223a33307d');
INSERT INTO divebook.events VALUES (4294967314, 1795305403929251, 3466769449, 23, '\x01a2008a76197984bf5649b177d8dc01', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a322c22726573756c74223a7b2274657874223a223330222c2276616c7565223a33307d7d');
INSERT INTO divebook.events VALUES (4294967315, 1795305403929275, 273834521, 42, '\x01a2008a76197984bf5649b177d8dc02', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a2264656c657465222c226b6579223a226e227d5d7d');
INSERT INTO divebook.events VALUES (4294967316, 1795305403929322, 1908926983, 42, '\x01a2008a76197984bf5649b177d8dc03', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a22636f756e7473222c2276616c7565223a5b31302c32302c33305d7d5d7d');
INSERT INTO divebook.events VALUES (4294967317, 1795305403929341, 4110558960, 44, '\x01a2008a76197984bf5649b177d8dc04', 'main', 'count', '\x7b226f7574707574223a2223206e3a20315c6e5c6e31305c6e5c6e23206e3a20325c6e5c6e32305c6e5c6e23206e3a20335c6e5c6e3330222c2273746f7265645f7661726961626c65223a22636f756e7473227d');
INSERT INTO divebook.events VALUES (4294967318, 1795305403929384, 695771044, 47, '\x01a2008a76197984bf5649b177d8dc05', 'main', 'broken', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (4294967319, 1795305403929486, 485214930, 28, '\x01a2008a76197984bf5649b177d8dc06', 'main', 'broken', '\x7b226f7065726174696f6e5f6964223a226f705f6265376235303532313238653537303835656566346566383865376663386535222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a2231202f2030227d2c22706172616d65746572735f68617368223a2233303332323839373234376537386636222c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (4294967320, 1795305403935138, 1882042910, 27, '\x01a2008a761f722b8e5170c3d6d3c800', 'main', 'broken', '\x7b226f7065726174696f6e5f6964223a226f705f6265376235303532313238653537303835656566346566383865376663386535222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a353339363030302c226572726f72223a225a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f222c226572726f725f6e616d6573223a5b225363726970744572726f72222c2244697665626f6f6b4572726f72222c22457863657074696f6e225d2c22726169736564223a7b227479706573223a5b2264697665626f6f6b2e6572726f72733a5363726970744572726f72222c2264697665626f6f6b2e6572726f72733a44697665626f6f6b4572726f72225d2c2261726773223a5b225a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f225d2c226669656c6473223a7b226c696e65223a317d7d7d');
INSERT INTO divebook.events VALUES (4294967321, 1795305403935360, 7384368, 45, '\x01a2008a761f722b8e5170c3d6d3c801', 'main', 'broken', '\x7b226572726f72223a2273637269707420657865637574696f6e206f7065726174696f6e206661696c65643a206661696c656420746f2065786563757465207363726970743a205a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f227d');
INSERT INTO divebook.events VALUES (4294967322, 1795305403935394, 3496303249, 42, '\x01a2008a761f722b8e5170c3d6d3c802', 'main', 'broken', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a2270726f626c656d222c2276616c7565223a7b2274797065223a224d6f6e747952756e74696d654572726f72222c226d657373616765223a2273637269707420657865637574696f6e206f7065726174696f6e206661696c65643a206661696c656420746f2065786563757465207363726970743a205a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f222c2273746570223a2262726f6b656e222c22617474656d707473223a317d7d5d7d');
INSERT INTO divebook.events VALUES (4294967323, 1795305403935406, 630329864, 43, '\x01a2008a761f722b8e5170c3d6d3c803', 'main', 'broken', '\x7b22746172676574223a2261736b222c226572726f72223a2273637269707420657865637574696f6e206f7065726174696f6e206661696c65643a206661696c656420746f2065786563757465207363726970743a205a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f227d');
INSERT INTO divebook.events VALUES (4294967324, 1795305403935445, 4281899481, 47, '\x01a2008a761f722b8e5170c3d6d3c804', 'main', 'ask', '\x7b22737465705f74797065223a22696e74657272757074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (4294967325, 1795305403935594, 2162027993, 21, '\x01a2008a761f722b8e5170c3d6d3c805', 'main', 'ask', '\x7b22696e746572727570745f6964223a2261736b5f64323662373962616537376662373237222c226b696e64223a22636c6172696669636174696f6e222c227175657374696f6e223a22486f77206d616e793f227d');
INSERT INTO divebook.events VALUES (4294967326, 1795305403935594, 3623349006, 15, '\x01a2008a761f751fac25c7e5ecce9807', '', '', '\x7b22737461747573223a2277616974696e67227d');
INSERT INTO divebook.events VALUES (4294967327, 1796091778983555, 1472357361, 6, '\x01a22f6997a776bcaf556c26e3df7000', '', '', '\x7b2274616773223a5b226b657074225d2c226e6f7465223a226c6f6f6b2068657265222c226279223a22616e6e227d');
INSERT INTO divebook.events VALUES (8589934593, 1750000000000000, 2258519799, 17, '\x01977420dc00758a82700ac78a54e800', '', '', '\x7b22776f726b666c6f775f6e616d65223a22736372697074222c22696e70757473223a7b226e223a337d2c22646566696e6974696f6e223a7b226e616d65223a22736372697074222c22696e70757473223a5b7b226e616d65223a226e227d5d2c227374657073223a5b7b226e616d65223a226f6e65222c2274797065223a22736372697074222c22736372697074223a22696e707574732e6e202b2031222c2273746f7265223a2261222c226564676573223a5b7b2273746570223a2274776f227d5d7d2c7b226e616d65223a2274776f222c2274797065223a22736372697074222c22736372697074223a2273746174652e61202a2032222c2273746f7265223a2262222c226564676573223a5b5d7d5d2c22736f75726365223a224e616d653a207363726970745c6e496e707574733a5c6e2d204e616d653a206e5c6e53746570733a5c6e2d204e616d653a206f6e655c6e20205363726970743a20696e707574732e6e202b20315c6e202053746f72653a20615c6e2d204e616d653a2074776f5c6e20205363726970743a2073746174652e61202a20325c6e202053746f72653a20625c6e227d2c2266696e6765727072696e74223a2265376463643033623130656463643861623137613162663435326437616561373033323764383462306430356566333363336231343939643534356239313934222c22736f75726365223a224e616d653a207363726970745c6e496e707574733a5c6e2d204e616d653a206e5c6e53746570733a5c6e2d204e616d653a206f6e655c6e20205363726970743a20696e707574732e6e202b20315c6e202053746f72653a20615c6e2d204e616d653a2074776f5c6e20205363726970743a2073746174652e61202a20325c6e202053746f72653a20625c6e222c227772697474656e5f6279223a22302e312e30222c226f726967696e223a22696d706f7274222c2273656564223a2239346237633365626366626262313064227d');
INSERT INTO divebook.events VALUES (8589934594, 1750000000000000, 4247571205, 35, '\x01977420dc00758a82700ac78a54e801', 'main', '', '\x7b2263757272656e745f73746570223a226f6e65227d');
INSERT INTO divebook.events VALUES (8589934595, 1750000000000000, 3080687818, 47, '\x01977420dc00758a82700ac78a54e802', 'main', 'one', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (8589934596, 1750000000000000, 90341260, 28, '\x01977420dc00758a82700ac78a54e803', 'main', 'one', '\x7b226f7065726174696f6e5f6964223a226f705f3034313961333266373330363834383734663837326239323662336365323434222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a22696e707574732e6e202b2031227d2c22706172616d65746572735f68617368223a2265613136366335633061323431636463222c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (8589934597, 1750000000000000, 1810947271, 26, '\x01977420dc00758a82700ac78a54e804', 'main', 'one', '\x7b226f7065726174696f6e5f6964223a226f705f3034313961333266373330363834383734663837326239323662336365323434222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a302c22726573756c74223a347d');
INSERT INTO divebook.events VALUES (8589934598, 1750000000000000, 2783484105, 42, '\x01977420dc00758a82700ac78a54e805', 'main', 'one', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a2261222c2276616c7565223a347d5d7d');
INSERT INTO divebook.events VALUES (8589934599, 1750000000000000, 827647339, 44, '\x01977420dc00758a82700ac78a54e806', 'main', 'one', '\x7b226f7574707574223a2234222c2273746f7265645f7661726961626c65223a2261227d');
INSERT INTO divebook.events VALUES (8589934600, 1750000000000000, 1564012677, 47, '\x01977420dc00758a82700ac78a54e807', 'main', 'two', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (8589934601, 1750000000000000, 1918685431, 28, '\x01977420dc00758a82700ac78a54e808', 'main', 'two', '\x7b226f7065726174696f6e5f6964223a226f705f3933613331643062383236376135613362613731613134343234313561623539222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a2273746174652e61202a2032227d2c22706172616d65746572735f68617368223a2266623432663730376564623763376533222c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (8589934602, 1750000000000000, 2916122691, 26, '\x01977420dc00758a82700ac78a54e809', 'main', 'two', '\x7b226f7065726174696f6e5f6964223a226f705f3933613331643062383236376135613362613731613134343234313561623539222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a302c22726573756c74223a387d');
INSERT INTO divebook.events VALUES (8589934603, 1750000000000000, 462939028, 42, '\x01977420dc00758a82700ac78a54e80a', 'main', 'two', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a2262222c2276616c7565223a387d5d7d');
INSERT INTO divebook.events VALUES (8589934604, 1750000000000000, 3161094728, 44, '\x01977420dc00758a82700ac78a54e80b', 'main', 'two', '\x7b226f7574707574223a2238222c2273746f7265645f7661726961626c65223a2262227d');
INSERT INTO divebook.events VALUES (8589934605, 1750000000000000, 1324479495, 32, '\x01977420dc00758a82700ac78a54e80c', 'main', '', '\x7b2266696e616c5f73746570223a2274776f227d');
INSERT INTO divebook.events VALUES (8589934606, 1750000000000000, 3714657492, 12, '\x01977420dc007807b51e19609a116000', '', '', '\x7b22736f75726365223a22657865635f30316a78743231713030667a6d3933393863716d7672377a7370222c226174223a31332c22776f726b666c6f775f6e616d65223a22736372697074222c2270726576696f7573223a312c226368616e6765223a7b227661726961626c6573223a7b2261223a397d7d2c226f726967696e223a22666f726b222c2266696e6765727072696e74223a2265376463643033623130656463643861623137613162663435326437616561373033323764383462306430356566333363336231343939643534356239313934222c227772697474656e5f6279223a22302e312e30227d');
INSERT INTO divebook.events VALUES (8589934607, 1750000000000000, 2571176709, 16, '\x01977420dc007401891883a2d0cb4c00', '', '', '\x7b2270726576696f75735f737461747573223a2272756e6e696e67227d');
INSERT INTO divebook.events VALUES (8589934608, 1750000000000000, 4260891996, 12, '\x01977420dc0076c2bac870d5be457800', '', '', '\x7b22736f75726365223a22657865635f30316a7874323171303066393574747a767765626e7a73747636222c226174223a31352c22776f726b666c6f775f6e616d65223a22736372697074222c2270726576696f7573223a31342c226368616e6765223a7b227661726961626c6573223a7b2261223a31317d7d2c226f726967696e223a22666f726b222c2266696e6765727072696e74223a2265376463643033623130656463643861623137613162663435326437616561373033323764383462306430356566333363336231343939643534356239313934222c227772697474656e5f6279223a22302e312e30227d');
INSERT INTO divebook.events VALUES (8589934609, 1750000000000000, 4166503932, 16, '\x01977420dc00743a97d787c569864c00', '', '', '\x7b2270726576696f75735f737461747573223a2272756e6e696e67227d');
INSERT INTO divebook.events VALUES (8589934610, 1750000000000000, 1053913326, 15, '\x01977420dc007406a147268215045931', '', '', '\x7b22737461747573223a2272756e6e696e67227d');
INSERT INTO divebook.events VALUES (12884901889, 1795305403737299, 93140748, 17, '\x01a2008a75597048a92c5084e3326442', '', '', '\x7b22776f726b666c6f775f6e616d65223a227265636f72646564222c22696e70757473223a7b7d2c22646566696e6974696f6e223a7b226e616d65223a227265636f72646564222c226f757470757473223a5b7b226e616d65223a22616c6c227d5d2c227374657073223a5b7b226e616d65223a22636f756e74222c2274797065223a22736372697074222c22736372697074223a226e202a203130222c2273746f7265223a22636f756e7473222c2265616368223a7b226974656d73223a5b312c322c335d2c2261735f223a226e227d2c226564676573223a5b7b2273746570223a2262726f6b656e227d5d7d2c7b226e616d65223a2262726f6b656e222c2274797065223a22736372697074222c22736372697074223a2231202f2030222c226564676573223a5b7b2273746570223a2261736b227d5d2c226361746368223a5b7b2273746570223a2261736b222c2273746f7265223a2270726f626c656d227d5d7d2c7b226e616d65223a2261736b222c2274797065223a22696e74657272757074222c2273746f7265223a226d616e79222c226564676573223a5b7b2273746570223a2277616974227d5d2c2261736b223a7b227175657374696f6e223a22486f77206d616e793f227d7d2c7b226e616d65223a2277616974222c2274797065223a2277616974222c2273746f7265223a227369676e616c222c226564676573223a5b7b2273746570223a22656e64227d5d2c227369676e616c223a22676f227d2c7b226e616d65223a22656e64222c2274797065223a22736372697074222c22736372697074223a225b73746174652e6d616e792c202a73746174652e636f756e74735d222c2273746f7265223a22616c6c222c226564676573223a5b5d7d5d7d2c2266696e6765727072696e74223a2233613737303964393534393638303935383762656665323230646632316338303366316237616236306464303765613733393963653831303131626430616661222c227772697474656e5f6279223a22302e312e30222c2273656564223a2262373339643230393132663339393762227d');
INSERT INTO divebook.events VALUES (12884901890, 1795305403811418, 4094420117, 35, '\x01a2008a75a37da2bca73e9492f59f61', 'main', '', '\x7b2263757272656e745f73746570223a22636f756e74227d');
INSERT INTO divebook.events VALUES (12884901891, 1795305403822211, 3799817705, 47, '\x01a2008a75ae733481f8f98b940b6229', 'main', 'count', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (12884901892, 1795305403822421, 1522279594, 25, '\x01a2008a75ae7f26ad72bbe5b5a9a168', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a302c226974656d223a317d');
INSERT INTO divebook.events VALUES (12884901893, 1795305403822440, 2547832643, 42, '\x01a2008a75ae7a8dbad9af98d6f3fd81', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226e222c2276616c7565223a317d5d7d');
INSERT INTO divebook.events VALUES (12884901894, 1795305403822628, 2620839576, 28, '\x01a2008a75ae7e169796786088701f4b', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3365383733393937366136666531323931326434653534363733356163663166222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a226e202a203130227d2c22706172616d65746572735f68617368223a2230643662306366353337336430396634222c22697465726174696f6e5f696e646578223a302c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (12884901895, 1795305403920481, 368727652, 26, '\x01a2008a76107ac89dad772dd72a500b', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3365383733393937366136666531323931326434653534363733356163663166222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a39323633383030302c22726573756c74223a31307d');
INSERT INTO divebook.events VALUES (12884901896, 1795305403920715, 3333296815, 23, '\x01a2008a76107896b21a9944d0fc9061', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a302c22726573756c74223a7b2274657874223a223130222c2276616c7565223a31307d7d');
INSERT INTO divebook.events VALUES (12884901897, 1795305403920744, 3330945298, 25, '\x01a2008a76107928a473e835f2818cd9', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a312c226974656d223a327d');
INSERT INTO divebook.events VALUES (12884901898, 1795305403920762, 661328650, 42, '\x01a2008a76107c01a0eb0202cf41aa60', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226e222c2276616c7565223a327d5d7d');
INSERT INTO divebook.events VALUES (12884901899, 1795305403920915, 3759597613, 28, '\x01a2008a76107c7bbfebd17a4e98ff4b', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3564353531626334623239313239363964366134316134343166353661336637222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a226e202a203130227d2c22706172616d65746572735f68617368223a2230643662306366353337336430396634222c22697465726174696f6e5f696e646578223a312c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (12884901900, 1795305403924367, 3368913015, 26, '\x01a2008a76147cec8e5309d3af5d0e3e', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3564353531626334623239313239363964366134316134343166353661336637222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a333232303030302c22726573756c74223a32307d');
INSERT INTO divebook.events VALUES (12884901901, 1795305403924449, 982887114, 23, '\x01a2008a7614783cb7eb16e4eba422b3', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a312c22726573756c74223a7b2274657874223a223230222c2276616c7565223a32307d7d');
INSERT INTO divebook.events VALUES (12884901902, 1795305403924468, 1656214412, 25, '\x01a2008a761470e6ae2d32bec3e00697', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a322c226974656d223a337d');
INSERT INTO divebook.events VALUES (12884901903, 1795305403924478, 3003873188, 42, '\x01a2008a761472d3922723390790a1d8', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226e222c2276616c7565223a337d5d7d');
INSERT INTO divebook.events VALUES (12884901904, 1795305403924602, 1550064921, 28, '\x01a2008a76147584bb381cc5860d6565', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3236313365666332613861303466366461303965656236383264636564333532222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a226e202a203130227d2c22706172616d65746572735f68617368223a2230643662306366353337336430396634222c22697465726174696f6e5f696e646578223a322c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (12884901905, 1795305403929172, 4046907843, 26, '\x01a2008a761978d2ba4ba2c193596d1e', 'main', 'count', '\x7b226f7065726174696f6e5f6964223a226f705f3236313365666332613861303466366461303965656236383264636564333532222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a343430333030302c22726573756c74223a33307d');
INSERT INTO divebook.events VALUES (12884901906, 1795305403929251, 1297137637, 23, '\x01a2008a76197fd5a306891bd3f0221f', 'main', 'count', '\x7b22697465726174696f6e5f696e646578223a322c22726573756c74223a7b2274657874223a223330222c2276616c7565223a33307d7d');
INSERT INTO divebook.events VALUES (12884901907, 1795305403929275, 2695557753, 42, '\x01a2008a761975c4a299cba8be09bc59', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a2264656c657465222c226b6579223a226e227d5d7d');
INSERT INTO divebook.events VALUES (12884901908, 1795305403929322, 1210367580, 42, '\x01a2008a761972e5b342482775426ede', 'main', 'count', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a22636f756e7473222c2276616c7565223a5b31302c32302c33305d7d5d7d');
INSERT INTO divebook.events VALUES (12884901909, 1795305403929341, 3128953076, 44, '\x01a2008a76197f5582fcbecce3330bea', 'main', 'count', '\x7b226f7574707574223a2223206e3a20315c6e5c6e31305c6e5c6e23206e3a20325c6e5c6e32305c6e5c6e23206e3a20335c6e5c6e3330222c2273746f7265645f7661726961626c65223a22636f756e7473227d');
INSERT INTO divebook.events VALUES (12884901910, 1795305403929384, 1287968802, 47, '\x01a2008a76197dd7bf580b9902afd152', 'main', 'broken', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (12884901911, 1795305403929486, 4213709596, 28, '\x01a2008a761976e6ae8d7b5a53bcb9c8', 'main', 'broken', '\x7b226f7065726174696f6e5f6964223a226f705f6265376235303532313238653537303835656566346566383865376663386535222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a2231202f2030227d2c22706172616d65746572735f68617368223a2233303332323839373234376537386636222c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (12884901912, 1795305403935138, 3868793655, 27, '\x01a2008a761f7a049580f556aab14414', 'main', 'broken', '\x7b226f7065726174696f6e5f6964223a226f705f6265376235303532313238653537303835656566346566383865376663386535222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a353339363030302c226572726f72223a225a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f222c226572726f725f6e616d6573223a5b225363726970744572726f72222c2244697665626f6f6b4572726f72222c22457863657074696f6e225d2c22726169736564223a7b227479706573223a5b2264697665626f6f6b2e6572726f72733a5363726970744572726f72222c2264697665626f6f6b2e6572726f72733a44697665626f6f6b4572726f72225d2c2261726773223a5b225a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f225d2c226669656c6473223a7b226c696e65223a317d7d7d');
INSERT INTO divebook.events VALUES (12884901913, 1795305403935360, 2004040102, 45, '\x01a2008a761f7e688eb70fc91e8803b0', 'main', 'broken', '\x7b226572726f72223a2273637269707420657865637574696f6e206f7065726174696f6e206661696c65643a206661696c656420746f2065786563757465207363726970743a205a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f227d');
INSERT INTO divebook.events VALUES (12884901914, 1795305403935394, 80760581, 42, '\x01a2008a761f7ef1a00eede19448bd1b', 'main', 'broken', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a2270726f626c656d222c2276616c7565223a7b2274797065223a224d6f6e747952756e74696d654572726f72222c226d657373616765223a2273637269707420657865637574696f6e206f7065726174696f6e206661696c65643a206661696c656420746f2065786563757465207363726970743a205a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f222c2273746570223a2262726f6b656e222c22617474656d707473223a317d7d5d7d');
INSERT INTO divebook.events VALUES (12884901915, 1795305403935406, 4274947761, 43, '\x01a2008a761f7e46ad43ecca885dd058', 'main', 'broken', '\x7b22746172676574223a2261736b222c226572726f72223a2273637269707420657865637574696f6e206f7065726174696f6e206661696c65643a206661696c656420746f2065786563757465207363726970743a205a65726f4469766973696f6e4572726f723a206469766973696f6e206279207a65726f227d');
INSERT INTO divebook.events VALUES (12884901916, 1795305403935445, 3152789288, 47, '\x01a2008a761f7acb82588efc6986540b', 'main', 'ask', '\x7b22737465705f74797065223a22696e74657272757074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (12884901917, 1795305403935594, 3423857562, 21, '\x01a2008a761f714783b3befd335b655c', 'main', 'ask', '\x7b22696e746572727570745f6964223a2261736b5f64323662373962616537376662373237222c226b696e64223a22636c6172696669636174696f6e222c227175657374696f6e223a22486f77206d616e793f227d');
INSERT INTO divebook.events VALUES (12884901918, 1795305403952714, 1753027711, 16, '\x01a2008a7630783d9a7ac517ae3929dd', '', '', '\x7b2270726576696f75735f737461747573223a2277616974696e67227d');
INSERT INTO divebook.events VALUES (12884901919, 1795305403953268, 691124589, 22, '\x01a2008a76317d63a981e34ac54b42dd', 'main', 'ask', '\x7b22696e746572727570745f6964223a2261736b5f64323662373962616537376662373237222c22726573706f6e7365223a7b2274657874223a22666f7572227d2c22616e7377657265645f6279223a22616e6e222c226d657373616765223a317d');
INSERT INTO divebook.events VALUES (12884901920, 1795305403953722, 114802027, 42, '\x01a2008a76317d09ab80cdc6362d2c1f', 'main', 'ask', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a226d616e79222c2276616c7565223a22666f7572227d5d7d');
INSERT INTO divebook.events VALUES (12884901921, 1795305403953750, 4239969567, 44, '\x01a2008a7631778bb5a08f455da6b622', 'main', 'ask', '\x7b226f7574707574223a22666f7572222c2273746f7265645f7661726961626c65223a226d616e79227d');
INSERT INTO divebook.events VALUES (12884901922, 1795305403953783, 1838441117, 47, '\x01a2008a763178a4b1330ed4fdb590f5', 'main', 'wait', '\x7b22737465705f74797065223a2277616974222c227669736974223a317d');
INSERT INTO divebook.events VALUES (12884901923, 1795305403954138, 263050313, 28, '\x01a2008a76327464afa1624362e87c33', 'main', 'wait', '\x7b226f7065726174696f6e5f6964223a226f705f3463633731613762633239313461616362356535353439333939656163353936222c226f7065726174696f6e5f74797065223a227369676e616c5f77616974222c22706172616d6574657273223a7b227369676e616c223a22676f222c227365636f6e6473223a6e756c6c7d2c22706172616d65746572735f68617368223a2264353939623031663231313238333534222c226b6579223a312c226e616d65223a22676f227d');
INSERT INTO divebook.events VALUES (12884901924, 1795305403997831, 3175483636, 16, '\x01a2008a765d706090edb02c5b639ead', '', '', '\x7b2270726576696f75735f737461747573223a2277616974696e67227d');
INSERT INTO divebook.events VALUES (12884901925, 1795305403998186, 3484874001, 41, '\x01a2008a765e7942a08ce71428894941', '', '', '\x7b227369676e616c5f74797065223a22676f222c227061796c6f6164223a7b226279223a22626f62227d2c22736f75726365223a22626f62206576656e745f303030303030303030306561733965626d6b3361797479643030222c226d657373616765223a327d');
INSERT INTO divebook.events VALUES (12884901926, 1795305403998517, 1775630650, 26, '\x01a2008a765e7fdea27562998a4cb7f7', 'main', 'wait', '\x7b226f7065726174696f6e5f6964223a226f705f3463633731613762633239313461616362356535353439333939656163353936222c226f7065726174696f6e5f74797065223a227369676e616c5f77616974222c226475726174696f6e223a34343337313030302c22726573756c74223a7b226279223a22626f62227d7d');
INSERT INTO divebook.events VALUES (12884901927, 1795305403998595, 3502556714, 42, '\x01a2008a765e7296976e50fa054f928a', 'main', 'wait', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a227369676e616c222c2276616c7565223a7b226279223a22626f62227d7d5d7d');
INSERT INTO divebook.events VALUES (12884901928, 1795305403998617, 1473755956, 44, '\x01a2008a765e7427b84236875def91e2', 'main', 'wait', '\x7b226f7574707574223a227b5c2262795c223a205c22626f625c227d222c2273746f7265645f7661726961626c65223a227369676e616c227d');
INSERT INTO divebook.events VALUES (12884901929, 1795305403998650, 563293391, 47, '\x01a2008a765e7eeebc9d0fab5da9bed4', 'main', 'end', '\x7b22737465705f74797065223a22736372697074222c227669736974223a317d');
INSERT INTO divebook.events VALUES (12884901930, 1795305403998736, 944437104, 28, '\x01a2008a765e7bdea52bcf09660d77fa', 'main', 'end', '\x7b226f7065726174696f6e5f6964223a226f705f3135306563623566323636323665393766633930386237613163613333323032222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c22706172616d6574657273223a7b22736372697074223a225b73746174652e6d616e792c202a73746174652e636f756e74735d227d2c22706172616d65746572735f68617368223a2262336465383638343564613764616366222c226b6579223a22736372697074227d');
INSERT INTO divebook.events VALUES (12884901931, 1795305404009053, 800943545, 26, '\x01a2008a766970858e8580a8ddfb0c30', 'main', 'end', '\x7b226f7065726174696f6e5f6964223a226f705f3135306563623566323636323665393766633930386237613163613333323032222c226f7065726174696f6e5f74797065223a227363726970745f657865637574696f6e222c226475726174696f6e223a31303138303030302c22726573756c74223a5b22666f7572222c31302c32302c33305d7d');
INSERT INTO divebook.events VALUES (12884901932, 1795305404009185, 3458629797, 42, '\x01a2008a76697157b99bd9e5695ce7ff', 'main', 'end', '\x7b226d75746174696f6e73223a5b7b2274797065223a22736574222c226b6579223a22616c6c222c2276616c7565223a5b22666f7572222c31302c32302c33305d7d5d7d');
INSERT INTO divebook.events VALUES (12884901933, 1795305404009209, 1704992874, 44, '\x01a2008a76697b88831aceb364185784', 'main', 'end', '\x7b226f7574707574223a225b5c22666f75725c222c2031302c2032302c2033305d222c2273746f7265645f7661726961626c65223a22616c6c227d');
INSERT INTO divebook.events VALUES (12884901934, 1795305404009246, 1165346597, 32, '\x01a2008a76697258a0e3b0d6c80a5753', 'main', '', '\x7b2266696e616c5f73746570223a22656e64227d');
INSERT INTO divebook.events VALUES (12884901935, 1795305404009619, 4002887512, 8, '\x01a2008a76697e44879b0850651e992f', '', '', '\x7b226f757470757473223a7b22616c6c223a5b22666f7572222c31302c32302c33305d7d7d');
INSERT INTO divebook.executions OVERRIDING SYSTEM VALUE VALUES (1, 'exec_01m808mxacfr9sv5ks9w0wes42', 'picture', 1795305403737299, 1795305403935594, 31, NULL, 3602, NULL, 0, 'full', 'recorded', '3a7709d95496809587befe220df21c803f1b7ab60dd07ea7399ce81011bd0afa', NULL, 'import', NULL, '["kept"]', 'look here', NULL, NULL, 1, 414979548, 1472357361, 1, NULL, NULL);
INSERT INTO divebook.executions OVERRIDING SYSTEM VALUE VALUES (2, 'exec_01jxt21q00f7rvqybcc2fssx75', 'picture', 1750000000000000, 1750000000000000, 18, NULL, 2150, NULL, 0, 'full', 'script', 'e7dcd03b10edcd8ab17a1bf452d7aea70327d84b0d05ef33c3b1499d545b9194', NULL, 'fork', 'exec_01jxt21q00f95ttzvwebnzstv6', '[]', NULL, NULL, NULL, 16, 1595085770, 1053913326, 0, NULL, NULL);
INSERT INTO divebook.executions OVERRIDING SYSTEM VALUE VALUES (3, 'exec_01m8qpk5xney5rk964ek6y28kd', 'completed', 1795305403737299, 1795305404009619, 47, NULL, 4891, NULL, 0, 'full', 'recorded', '3a7709d95496809587befe220df21c803f1b7ab60dd07ea7399ce81011bd0afa', NULL, 'run', NULL, '[]', NULL, NULL, NULL, 1, 4153075776, 4002887512, 0, NULL, NULL);
INSERT INTO divebook.format VALUES (6);
INSERT INTO divebook.last_message VALUES (0);
INSERT INTO divebook.questions VALUES (1, 'ask_d26b79bae77fb727');
SELECT pg_catalog.setval('divebook.event_types_number_seq', 50, true);
SELECT pg_catalog.setval('divebook.executions_key_seq', 3, true);
ALTER TABLE ONLY divebook.blob_uses
    ADD CONSTRAINT blob_uses_pkey PRIMARY KEY (key, digest);
ALTER TABLE ONLY divebook.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY divebook.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (key, sequence);
ALTER TABLE ONLY divebook.event_types
    ADD CONSTRAINT event_types_name_key UNIQUE (name);
ALTER TABLE ONLY divebook.event_types
    ADD CONSTRAINT event_types_pkey PRIMARY KEY (number);
ALTER TABLE ONLY divebook.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (place);
ALTER TABLE ONLY divebook.executions
    ADD CONSTRAINT executions_id_key UNIQUE (id);
ALTER TABLE ONLY divebook.executions
    ADD CONSTRAINT executions_pkey PRIMARY KEY (key);
ALTER TABLE ONLY divebook.executions
    ADD CONSTRAINT executions_start_key_excl EXCLUDE USING hash (start_key WITH =);
ALTER TABLE ONLY divebook.followers
    ADD CONSTRAINT followers_pkey PRIMARY KEY (key, follower);
ALTER TABLE ONLY divebook.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (key);
ALTER TABLE ONLY divebook.messages
    ADD CONSTRAINT messages_key_place_key UNIQUE (key, place);
ALTER TABLE ONLY divebook.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (number);
ALTER TABLE ONLY divebook.questions
    ADD CONSTRAINT questions_pkey PRIMARY KEY (key, id);
ALTER TABLE ONLY divebook.queued
    ADD CONSTRAINT queued_pkey PRIMARY KEY (key);
ALTER TABLE ONLY divebook.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (id);
ALTER TABLE ONLY divebook.summaries
    ADD CONSTRAINT summaries_pkey PRIMARY KEY (key);
ALTER TABLE ONLY divebook.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);
CREATE INDEX blob_uses_by_blob ON divebook.blob_uses USING btree (digest);
CREATE INDEX executions_by_age ON divebook.executions USING btree (created_at, key);
CREATE INDEX executions_by_notebook ON divebook.executions USING btree ("left"(notebook, 200), created_at, key) WHERE (notebook IS NOT NULL);
CREATE INDEX executions_by_parent ON divebook.executions USING btree ("left"(parent, 200), created_at, key) WHERE (parent IS NOT NULL);
CREATE INDEX executions_by_source ON divebook.executions USING btree (source_key, forked_at) WHERE (source_key IS NOT NULL);
CREATE INDEX executions_by_tag ON divebook.executions USING gin (tags);
CREATE INDEX executions_by_workflow ON divebook.executions USING btree ("left"(workflow_name, 200), created_at, key);
CREATE INDEX executions_ended ON divebook.executions USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX executions_unended ON divebook.executions USING btree (created_at, key) WHERE (ended_at IS NULL);
CREATE INDEX messages_by_execution ON divebook.messages USING btree (key, number);
CREATE INDEX messages_by_place ON divebook.messages USING btree (place, number);
CREATE INDEX queued_by_queue ON divebook.queued USING btree ("left"(queue, 200), priority DESC, key) WHERE (NOT withheld);
