// Makes TypeScript types of an OpenAPI document: one type for each schema, in the namespace `Api`.

/**
 * Returns the text of a declaration file.
 * @param {any} document
 */
export function typesOf(document) {
  const schemas = Object.entries(document.components?.schemas ?? {});
  const types = schemas.map(([name, schema]) => `  export type ${identifier(name)} = ${typeOf(schema)};`);
  return `// Made of the OpenAPI document; do not edit.\ndeclare namespace Api {\n${types.join('\n')}\n}\n`;
}

/** @param {string} name */
function identifier(name) {
  return name.replace(/[^A-Za-z0-9_]/g, '_');
}

/**
 * Returns the type of a schema.
 * @param {any} schema
 * @returns {string}
 */
export function typeOf(schema) {
  if (schema === true || schema === undefined) return 'unknown';
  if (schema.$ref) return identifier(schema.$ref.split('/').pop());
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  for (const [key, operator] of [['allOf', ' & '], ['oneOf', ' | '], ['anyOf', ' | ']]) {
    if (schema[key]) return `(${schema[key].map(typeOf).join(operator)})`;
  }
  const kinds = [schema.type ?? 'unknown'].flat();
  return [...new Set(kinds.map((kind) => typeOfKind(kind, schema)))].join(' | ');
}

/**
 * @param {string} kind
 * @param {any} schema
 */
function typeOfKind(kind, schema) {
  switch (kind) {
    case 'integer':
    case 'number':
      return 'number';
    case 'string':
    case 'boolean':
    case 'null':
      return kind;
    case 'array':
      return `Array<${typeOf(schema.items)}>`;
    case 'object':
      return objectType(schema);
    default:
      return 'unknown';
  }
}

/** @param {any} schema */
function objectType(schema) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).map(([name, field]) => `${JSON.stringify(name)}${required.has(name) ? '' : '?'}: ${typeOf(field)}`);
  if (typeof schema.additionalProperties === 'object') fields.push(`[name: string]: ${fields.length ? 'unknown' : typeOf(schema.additionalProperties)}`);
  return fields.length ? `{ ${fields.join('; ')} }` : 'Record<string, unknown>';
}
