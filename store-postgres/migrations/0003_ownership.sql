-- Owning slots. A raise (take, settle, release) updates the fence rows, and so waits for every commit that holds one:
-- whoever raised knows that no commit under an older epoch can still happen.

CREATE FUNCTION queen.raise_v1(p_slot smallint, p_epoch bigint, p_token uuid) RETURNS void LANGUAGE sql AS $$
    UPDATE queen.fences SET epoch = p_epoch, token = p_token WHERE slot = p_slot;
$$;

-- Whether an owner was declared dead: it owns nothing any more, whatever it believes.
CREATE FUNCTION queen.is_dead_v1(p_owner text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM queen.brokers WHERE dead AND incarnation::text = p_owner);
$$;

-- The advisory lock that a broker holds on its control connection for as long as it stands.
CREATE FUNCTION queen.session_key_v1(p_incarnation uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || substr(replace(p_incarnation::text, '-', ''), 1, 16))::bit(64)::bigint;
$$;

-- The new epoch; nothing when somebody was quicker.
CREATE FUNCTION queen.take_v1(p_slot smallint, p_seen bigint, p_token uuid, p_owner text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_epoch bigint;
BEGIN
    UPDATE queen.slots SET epoch = epoch + 1, token = p_token, owner = p_owner
    WHERE slot = p_slot AND epoch = p_seen AND NOT queen.is_dead_v1(p_owner) RETURNING epoch INTO v_epoch;
    IF FOUND THEN
        PERFORM queen.raise_v1(p_slot, v_epoch, p_token);
    END IF;
    RETURN v_epoch;
END $$;

-- Whether every commit of `p_epochs` and `p_numbers` is there.
CREATE FUNCTION queen.suffix_holds_v1(p_slot smallint, p_epochs bigint[], p_numbers bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. cardinality(p_epochs) LOOP
        PERFORM FROM queen.commits WHERE slot = p_slot AND epoch = p_epochs[i] AND number = p_numbers[i];
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- Renews one slot: 0 done, 1 fenced, 2 an acknowledged commit is missing.
CREATE FUNCTION queen.renew_v1(p_slot smallint, p_epoch bigint, p_token uuid, p_epochs bigint[], p_numbers bigint[])
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF NOT queen.suffix_holds_v1(p_slot, p_epochs, p_numbers) THEN
        PERFORM FROM queen.slots WHERE slot = p_slot AND epoch = p_epoch AND token = p_token;
        RETURN CASE WHEN FOUND THEN 2 ELSE 1 END;
    END IF;
    UPDATE queen.slots SET beat = beat + 1
        WHERE slot = p_slot AND epoch = p_epoch AND token = p_token AND NOT queen.is_dead_v1(owner);
    RETURN CASE WHEN FOUND THEN 0 ELSE 1 END;
END $$;

CREATE FUNCTION queen.release_v1(p_slot smallint, p_epoch bigint, p_token uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE queen.slots SET owner = NULL, token = NULL WHERE slot = p_slot AND epoch = p_epoch AND token = p_token;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM queen.raise_v1(p_slot, p_epoch, NULL);
    RETURN true;
END $$;

-- Raises the own epoch, then looks, in a snapshot of its own, which commits are there. No epoch: fenced.
CREATE FUNCTION queen.settle_v1(
    p_slot smallint, p_epoch bigint, p_token uuid, p_new_token uuid, p_epochs bigint[], p_numbers bigint[],
    OUT epoch bigint, OUT committed boolean[]
) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE queen.slots s SET epoch = s.epoch + 1, token = p_new_token
    WHERE s.slot = p_slot AND s.epoch = p_epoch AND s.token = p_token RETURNING s.epoch INTO epoch;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM queen.raise_v1(p_slot, epoch, p_new_token);
    committed := ARRAY(
        SELECT EXISTS (SELECT FROM queen.commits c WHERE c.slot = p_slot AND c.epoch = u.epoch AND c.number = u.number)
        FROM unnest(p_epochs, p_numbers) WITH ORDINALITY AS u(epoch, number, place) ORDER BY u.place);
END $$;
