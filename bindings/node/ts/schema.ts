// Schemas of arguments: Standard Schema (Zod 4 and others) or plain JSON Schema, with the type of what they let through.

import { invalid, TurnwheelError } from './errors.js';
import { native } from './native.js';

/** The part of Standard Schema that is used here (https://standardschema.dev). */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
      readonly output: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

/** What a Standard Schema says of a value. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined }[] };

/** A JSON Schema. Written `as const`, it gives the arguments their type. */
export type JsonSchema = { readonly [key: string]: unknown };

type Types = { string: string; number: number; integer: number; boolean: boolean; null: null };

type ObjectOf<S> = S extends { readonly properties: infer P }
  ? { -readonly [K in keyof P as K extends Required_<S> ? K : never]: FromSchema<P[K]> } & {
      -readonly [K in keyof P as K extends Required_<S> ? never : K]?: FromSchema<P[K]>;
    }
  : { [key: string]: unknown };

type Required_<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;

/** The type of the values that a JSON Schema, written `as const`, lets through. */
export type FromSchema<S> = S extends { readonly const: infer C }
  ? C
  : S extends { readonly enum: readonly (infer E)[] }
    ? E
    : S extends { readonly oneOf: readonly (infer B)[] } | { readonly anyOf: readonly (infer B)[] }
      ? FromSchema<B>
      : S extends { readonly type: keyof Types }
        ? Types[S['type']]
        : S extends { readonly type: 'array'; readonly items: infer I }
          ? FromSchema<I>[]
          : S extends { readonly type: 'array' }
            ? unknown[]
            : S extends { readonly type: 'object' }
              ? { [K in keyof ObjectOf<S>]: ObjectOf<S>[K] }
              : unknown;

/** The type of the arguments that a tool with these parameters gets. */
export type ArgumentsOf<S> =
  S extends StandardSchema<never, infer Output>
    ? Output
    : S extends { readonly '~standard': { readonly types?: { readonly output: infer Output } | undefined } }
      ? Output
      : string extends keyof S
        ? // eslint-disable-next-line @typescript-eslint/no-explicit-any
          any
        : FromSchema<S>;

/**
 * The JSON Schema that a shorthand stands for: a property says `required: true` itself, an object says whether it takes
 * more (`additionalProperties`), and `type: 'json'` is any JSON. Throws `UNSUPPORTED_SCHEMA`, naming the place.
 */
export function schemaOfShorthand(shorthand: { [name: string]: unknown }): JsonSchema {
  return JSON.parse(native.schemaOfShorthand(JSON.stringify(shorthand))) as JsonSchema;
}

/** @internal */
export function isStandard(schema: object): schema is StandardSchema {
  return '~standard' in schema;
}

/** @internal The JSON Schema of a Standard Schema. */
export function jsonSchemaOf(tool: string, schema: StandardSchema): JsonSchema {
  const standard = schema['~standard'];
  let json: Record<string, unknown>;
  if (standard.jsonSchema !== undefined) {
    json = { ...standard.jsonSchema.input({ target: 'draft-2020-12' }) };
  } else if (typeof (schema as { toJSONSchema?: unknown }).toJSONSchema === 'function') {
    json = { ...(schema as unknown as { toJSONSchema(): Record<string, unknown> }).toJSONSchema() };
  } else {
    throw invalid(
      `tool ${JSON.stringify(tool)}: the ${standard.vendor} schema cannot tell its JSON Schema; give that as \`jsonSchema\` beside \`parameters\``,
    );
  }
  delete json['$schema'];
  return json;
}

/** @internal Checks arguments; what is wrong with them is for the model to read. */
export async function checked<T>(schema: StandardSchema<unknown, T>, value: unknown): Promise<T> {
  let result = schema['~standard'].validate(value);
  if (result instanceof Promise) result = await result;
  if (result.issues === undefined) return result.value;
  const issues = result.issues.map(({ message, path }) => {
    const at = (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
    return at === '' ? message : `${at}: ${message}`;
  });
  throw new TurnwheelError('INVALID_ARGS', `invalid arguments: ${issues.join('; ')}`);
}
