import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { newestKey, placeOf, timeKey, timeOf } from './keys.js';
import { cloudFormation, iamPolicy, SHAPES, tableInput } from './tables.js';

const example = (name: string) =>
  JSON.parse(readFileSync(`docs/examples/dynamodb/${name}.json`, 'utf8')) as unknown;

describe('the tables', () => {
  it('are those of the examples (npm run docs:dynamodb)', () => {
    expect(example('cloudformation')).toEqual(cloudFormation());
    expect(example('iam-policy')).toEqual(iamPolicy());
  });

  it('declare every key attribute once', () => {
    for (const shape of Object.values(SHAPES)) {
      const { AttributeDefinitions } = tableInput('x', shape);
      const names = AttributeDefinitions!.map(({ AttributeName }) => AttributeName);
      expect(new Set(names).size).toBe(names.length);
    }
  });

  it('the policy of a running node can neither create, delete nor scan tables', () => {
    expect(JSON.stringify(iamPolicy())).not.toMatch(/Scan|CreateTable|DeleteTable|UpdateTable|"dynamodb:\*"/);
  });
});

describe('sort keys', () => {
  it('are in the order of an answer: newest first, lowest id first', () => {
    const places = [
      { createdAt: Number.MAX_SAFE_INTEGER, id: 'f' },
      { createdAt: 12, id: 'a' },
      { createdAt: 9, id: 'a' },
      { createdAt: 9, id: 'b' },
      { createdAt: 0, id: '0' },
    ];
    const keys = places.map(({ createdAt, id }) => newestKey(createdAt, id));
    expect([...keys].sort()).toEqual(keys);
    expect(keys.map(placeOf)).toEqual(places);
  });

  it('by time are oldest first', () => {
    const keys = [timeKey(0, 'b'), timeKey(9, 'a'), timeKey(10, 'a'), timeKey(Number.MAX_SAFE_INTEGER, 'a')];
    expect([...keys].sort()).toEqual(keys);
    expect(timeOf(keys[2]!)).toEqual({ time: 10, id: 'a' });
  });
});
