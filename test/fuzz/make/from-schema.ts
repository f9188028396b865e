/** Values that fit a JSON schema of the OpenAPI document, and now and then one that does not. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { AUTHORS } from './events.js';
import { hex, oddJson, oddNumber, oddText } from './values.js';

export interface JsonSchema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
}

const ODD_SHARE = 0.08;
/** Texts that many of the API's patterns accept. */
const FITTING = [
  'spam',
  'sea',
  'kukuri:global',
  'default',
  '1',
  '0',
  'en',
  '1.0',
  '192.0.2.9',
  'wss://example.com',
];
const UUID = '00000000-0000-4000-8000-000000000000';

export function fromSchema(
  dice: Dice,
  schema: JsonSchema | undefined,
  resolve: (ref: string) => JsonSchema,
): unknown {
  if (schema === undefined || dice.chance(ODD_SHARE)) return oddJson(dice);
  const again = (inner: JsonSchema | undefined) => fromSchema(dice, inner, resolve);
  if (schema.$ref !== undefined) return again(resolve(schema.$ref));
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return dice.pick(schema.enum);
  const options = schema.anyOf ?? schema.oneOf;
  if (options !== undefined) return again(dice.pick(options));
  if (schema.allOf !== undefined) return Object.assign({}, ...schema.allOf.map((part) => again(part) ?? {}));
  const type = Array.isArray(schema.type) ? dice.pick(schema.type) : schema.type;
  switch (type) {
    case 'object':
      return objectFrom(dice, schema, again);
    case 'array':
      return Array.from({ length: dice.between(schema.minItems ?? 0, (schema.minItems ?? 0) + 2) }, () =>
        again(schema.items),
      );
    case 'integer':
    case 'number':
      return dice.chance(0.8)
        ? dice.between(schema.minimum ?? 0, Math.min(schema.maximum ?? 100, 2 ** 40))
        : oddNumber(dice);
    case 'boolean':
      return dice.chance(0.5);
    case 'null':
      return null;
    case 'string':
      return textFrom(dice, schema);
    default:
      return oddJson(dice);
  }
}

function objectFrom(
  dice: Dice,
  { properties = {}, required = [] }: JsonSchema,
  again: (schema: JsonSchema) => unknown,
): unknown {
  const object: Record<string, unknown> = {};
  for (const [name, schema] of Object.entries(properties))
    if (required.includes(name) ? dice.chance(0.97) : dice.chance(0.4)) object[name] = again(schema);
  if (dice.chance(0.03)) object[oddText(dice, 8)] = oddJson(dice);
  return object;
}

function textFrom(dice: Dice, { pattern, format, maxLength = 40 }: JsonSchema): string {
  if (format === 'uuid') return UUID;
  if (pattern?.includes('64')) return dice.chance(0.5) ? dice.pick(AUTHORS).pubkey : hex(dice, 64);
  if (pattern !== undefined || dice.chance(0.4)) return dice.pick(FITTING);
  return oddText(dice, Math.min(maxLength, 60));
}
