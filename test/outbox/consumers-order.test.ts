/**
 * I8: the lane's lock makes commits follow one another, so two writers cannot make a reader of the outbox
 * skip a row.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readChanges } from '../../src/outbox/changes.sql.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { START } from '../support/models/event-model.js';
import { hasPassed, type Instance, Poster, startInstance } from '../support/stores/consuming.js';
import { type Ledger, makeLedger, readLedger, readWholeView } from '../support/stores/ledger.js';
import { type Life, openLife } from '../support/stores/life.js';

const NAME = 'ledger';
const LANES = 2;
const EACH = 150;

let life: Life;
let ledger: Ledger;
let instance: Instance;

beforeAll(async () => {
  life = await openLife(START * 1_000, [{}, {}], LANES);
  ledger = await makeLedger(life.client, NAME);
  instance = await startInstance(life, [ledger]);
  await hasPassed(life, NAME, [instance]);
});
afterAll(async () => {
  await instance?.stop();
  await life?.close();
});

describe('two writers cannot make a reader skip a row', () => {
  /** A consumer, and a cursor that is moved as often as it can be. */
  it('the outbox of two concurrent lanes is read completely and in order', async () => {
    const from = await readHead(life.client);
    const read: number[] = [];
    let isWriting = true;
    const follow = async (): Promise<void> => {
      let isLast = false;
      for (let after = from; !isLast; ) {
        isLast = !isWriting;
        const { changes, upTo } = await readChanges(life.client, { after, limit: 7, bare: true });
        read.push(...changes.map(({ seq }) => seq));
        if (upTo > after) isLast = false;
        after = upTo;
      }
    };
    const posters = [new Poster(life, 0), new Poster(life, 1)];
    const write = async (lane: number): Promise<void> => {
      for (let at = 0; at < EACH; at += 1) await posters[lane]!.send({}, undefined, lane);
    };
    const following = follow();
    await Promise.all(posters.map((_, lane) => write(lane)));
    isWriting = false;
    await following;
    await hasPassed(life, NAME, [instance]);
    const numbers = Array.from({ length: LANES * EACH }, (_, at) => from + 1 + at);
    expect(read).toEqual(numbers);
    expect(ledger.given).toEqual(numbers);
    expect(await readLedger(life.client, NAME)).toEqual(await readWholeView(life.client));
  });

  it('a table with a plain serial and two overlapping transactions loses a row', async () => {
    await life.client.query('CREATE TABLE plain (seq bigserial PRIMARY KEY, writer int)');
    const [slow, quick] = await Promise.all([life.database.connect(), life.database.connect()]);
    let position = 0;
    const read: number[] = [];
    const follow = async (): Promise<void> => {
      const { rows } = await life.client.query<{ seq: number; writer: number }>(
        'SELECT seq, writer FROM plain WHERE seq > $1 ORDER BY seq',
        [position],
      );
      read.push(...rows.map(({ writer }) => writer));
      position = rows.at(-1)?.seq ?? position;
    };
    await slow.query('BEGIN; INSERT INTO plain (writer) VALUES (1)');
    await quick.query('INSERT INTO plain (writer) VALUES (2)');
    await follow();
    await slow.query('COMMIT');
    await follow();
    expect(read).toEqual([2]);
    await Promise.all([slow.end(), quick.end()]);
  });
});
