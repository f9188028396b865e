/**
 * Moves repeated parts of the OpenAPI document to `components`: refusals, which most routes share, and equal
 * schemas. Without this the document is four times as large.
 */

import { errorsOf, operationId, type Route } from './contract.js';
import { ERRORS, type ErrorCode } from './rules-errors.js';

type Json = Readonly<Record<string, unknown>>;

interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly Json[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
}

interface Content {
  readonly $ref?: string;
  readonly content?: Readonly<Record<string, { readonly schema: unknown }>>;
}

export interface Document extends Json {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: Json;
}

/** A shorter schema is not shared. */
const SHARED_LENGTH_MIN = 160;

/** The document with the refusals of its routes, and with equal parts shared. */
export function shareParts(document: Document, routes: readonly Route[]): Document {
  const refusals = new Refusals();
  const schemas = new SharedSchemas();
  const codesById = new Map(routes.map((route) => [operationId(route), errorsOf(route)]));
  const operations = Object.values(document.paths).flatMap((methods) => Object.values(methods));
  for (const operation of operations) {
    for (const [, schema] of schemasOf(operation)) schemas.count(schema);
  }
  const complete = (operation: Operation) => {
    const refused = refusals.responsesTo(codesById.get(operation.operationId) ?? []);
    const shared = schemas.shareIn(operation);
    return { ...shared, responses: { ...shared.responses, ...refused } };
  };
  const paths = mapValues(document.paths, (methods) => mapValues(methods, complete));
  const components = {
    ...document.components,
    schemas: { ...schemas.components, ...refusals.schemas },
    responses: refusals.responses,
  };
  return { ...document, paths, components };
}

function mapValues<T, R>(
  object: Readonly<Record<string, T>>,
  change: (value: T, key: string) => R,
): Record<string, R> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value, key)]));
}

// ── Refusals ───────────────────────────────────────────────────────────────────────────────────────────────

class Refusals {
  readonly responses: Record<string, unknown> = {};
  readonly schemas = {
    RefusalMessage: { type: 'string', description: 'What happened, for people' },
    RefusalDetails: {
      type: 'object',
      additionalProperties: {},
      description: 'More fields, depending on the code',
    },
  };
  private readonly names = new Map<string, string>();

  /** One response for each status of these codes. */
  responsesTo(codes: readonly ErrorCode[]): Record<string, Content> {
    const byStatus = new Map<number, ErrorCode[]>();
    for (const code of codes) {
      const { status } = ERRORS[code];
      byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
    }
    const named = [...byStatus].map(([status, these]) => {
      const name = this.nameOf(status, these);
      this.responses[name] ??= responseOf(these);
      return [String(status), { $ref: `#/components/responses/${name}` }];
    });
    return Object.fromEntries(named);
  }

  private nameOf(status: number, codes: readonly ErrorCode[]): string {
    const key = codes.join();
    const known = this.names.get(key);
    if (known !== undefined) return known;
    const before = [...this.names.values()].filter((name) => name.startsWith(`Refused${status}`)).length;
    const name = `Refused${status}${before === 0 ? '' : `_${before + 1}`}`;
    this.names.set(key, name);
    return name;
  }
}

function responseOf(codes: readonly ErrorCode[]): unknown {
  const schema = {
    type: 'object',
    properties: {
      code: { type: 'string', enum: codes },
      message: { $ref: '#/components/schemas/RefusalMessage' },
      details: { $ref: '#/components/schemas/RefusalDetails' },
    },
    required: ['code', 'message', 'details'],
    additionalProperties: false,
  };
  return {
    description: codes.map((code) => `\`${code}\`: ${ERRORS[code].message}`).join('  \n'),
    content: { 'application/json': { schema } },
  };
}

// ── Schemas ────────────────────────────────────────────────────────────────────────────────────────────────

/** The schemas of an operation, each with a name for its place. */
function* schemasOf({ requestBody, responses }: Operation): Generator<[string, unknown]> {
  for (const { schema } of Object.values(requestBody?.content ?? {})) yield ['body', schema];
  for (const response of Object.values(responses)) {
    for (const { schema } of Object.values(response.content ?? {})) yield ['answer', schema];
  }
}

/** Keywords with schemas inside: in an object, in a list, or directly. */
const BY_NAME = ['properties', 'patternProperties'];
const LISTED = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
const SINGLE = ['items', 'additionalProperties', 'not'];

type Change = (schema: unknown, place: string) => unknown;

/** The schema with each schema inside it changed. */
function within(schema: Json, place: string, change: Change): Json {
  const changed = Object.entries(schema).map(([key, value]): [string, unknown] => {
    if (BY_NAME.includes(key))
      return [key, mapValues(value as Json, (each, name) => change(each, `${place} ${name}`))];
    if (LISTED.includes(key) && Array.isArray(value)) return [key, value.map((each) => change(each, place))];
    return SINGLE.includes(key)
      ? [key, change(value, key === 'items' ? `${place} item` : place)]
      : [key, value];
  });
  return Object.fromEntries(changed);
}

class SharedSchemas {
  readonly components: Record<string, unknown> = {};
  private readonly counts = new Map<string, number>();
  private readonly names = new Map<string, string>();

  count(schema: unknown): void {
    if (!isSchema(schema)) return;
    const text = JSON.stringify(schema);
    if (text.length < SHARED_LENGTH_MIN) return;
    const before = this.counts.get(text) ?? 0;
    this.counts.set(text, before + 1);
    // The parts of a repeated schema are counted once, because it will be in the document once.
    if (before === 0) within(schema, '', (each) => this.count(each));
  }

  shareIn(operation: Operation): Operation {
    const share = (content: Content, place: string): Content => ({
      ...content,
      ...(content.content && {
        content: mapValues(content.content, ({ schema }) => ({
          schema: this.share(schema, `${operation.operationId} ${place}`),
        })),
      }),
    });
    const { requestBody, responses } = operation;
    return {
      ...operation,
      ...(requestBody && { requestBody: share(requestBody, 'body') }),
      responses: mapValues(responses, (response) => share(response, 'answer')),
    };
  }

  private share(schema: unknown, place: string): unknown {
    if (!isSchema(schema)) return schema;
    const text = JSON.stringify(schema);
    const inner = (where: string) => within(schema, where, (each, there) => this.share(each, there));
    if ((this.counts.get(text) ?? 0) < 2) return inner(place);
    const known = this.names.get(text);
    const name = known ?? this.newName(place);
    if (known === undefined) {
      this.names.set(text, name);
      this.components[name] = inner(place);
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  /** Named after the place where it occurs first. */
  private newName(place: string): string {
    const words = place.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
    const name = words.map((word) => word[0]!.toUpperCase() + word.slice(1)).join('');
    const taken = [...this.names.values()].filter((other) => other.replace(/_\d+$/, '') === name).length;
    return taken === 0 ? name : `${name}_${taken + 1}`;
  }
}

function isSchema(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
