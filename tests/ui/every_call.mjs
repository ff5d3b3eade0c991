// Calls of every route of an API with every field, made of its OpenAPI document.

/**
 * Returns what calls a gateway with a tenant's session, as a page of its own would.
 * @param {string} url address of the gateway
 * @param {string} key
 */
export async function sessionOf(url, key) {
  const headers = { origin: url, 'x-fairgate-session': 'me', 'content-type': 'application/json' };
  const login = await fetch(`${url}/api/v1/session`, { method: 'POST', headers, body: JSON.stringify({ token: key }) });
  if (!login.ok) throw new Error(`no session: ${login.status} ${await login.text()}`);
  const cookie = login.headers.get('set-cookie').split(';')[0];
  return (method, path, body, signal) => fetch(url + path, { method, headers: { ...headers, cookie }, body: body === undefined ? undefined : JSON.stringify(body), signal });
}

/**
 * Returns calls: each method of each path with each of the names in it, alone, with each parameter of its query, and with
 * a body that has each field of its schema. Left out are streams, which do not end, and the end of the session.
 * @param {any} document OpenAPI
 * @param {string[]} names
 * @returns {Generator<{ method: string, path: string, body?: unknown }>}
 */
export function* everyCall(document, names) {
  for (const [template, item] of Object.entries(document.paths)) {
    for (const [word, operation] of Object.entries(item)) {
      const method = word.toUpperCase();
      const isStream = template.endsWith('/events') || template.endsWith('/stream');
      if (isStream || template === '/api/v1/openapi.json' || (method === 'DELETE' && template === '/api/v1/session')) continue;
      const schema = operation.requestBody?.content?.['application/json']?.schema;
      for (const name of template.includes('{') ? names : names.slice(0, 1)) {
        const path = template.replace(/\{[^}]+\}/g, encodeURIComponent(name));
        const queries = (operation.parameters ?? []).filter((parameter) => parameter.in === 'query');
        for (const body of method === 'GET' ? [undefined] : [{}, ...(schema ? names.map((each) => valueOf(document, schema, each)) : [])]) {
          yield { method, path, body };
        }
        for (const parameter of queries) for (const value of names) yield { method, path: `${path}?${parameter.name}=${encodeURIComponent(value)}`, body: method === 'GET' ? undefined : {} };
      }
    }
  }
}

/** Returns a value of a schema in which each text that may be free is `name`. */
function valueOf(document, schema, name, depth = 0) {
  if (depth > 6) return null;
  if (schema.$ref) return valueOf(document, document.components.schemas[schema.$ref.split('/').pop()], name, depth + 1);
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return valueOf(document, choices.find((each) => each.type !== 'null') ?? choices[0], name, depth + 1);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((each) => valueOf(document, each, name, depth + 1)));
  if (schema.enum) return schema.enum.find((each) => each !== null);
  switch ([schema.type].flat().find((type) => type !== 'null')) {
    case 'object':
      return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([field, each]) => [field, valueOf(document, each, name, depth + 1)]));
    case 'array':
      return schema.items ? [valueOf(document, schema.items, name, depth + 1)] : [];
    case 'integer':
    case 'number':
      return schema.minimum ?? 1;
    case 'boolean':
      return false;
    default:
      return name;
  }
}
