// Compares an expected with a got result (SCENARIO.md section 9). Key order never matters, list order always does, absent
// and `null` differ. An error that was recorded without a code and in words of the reference's own is compared as "there
// is an error": ours is coded on purpose.

const free = '$message';
const keyed = '$text:';

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

export function differences(expected, got, path = '', found = []) {
  if (isObject(expected) && isObject(got)) {
    const at = (key) => (path === '' ? key : `${path}.${key}`);
    for (const [key, wanted] of Object.entries(expected)) {
      if (Object.hasOwn(got, key)) differences(wanted, got[key], at(key), found);
      else found.push({ path: at(key), expected: wanted });
    }
    const isUncoded = expected.message === free && !Object.hasOwn(expected, 'code');
    for (const [key, given] of Object.entries(got)) {
      const isOurs = isUncoded && (key === 'code' || key === 'cause');
      if (!Object.hasOwn(expected, key) && !isOurs) found.push({ path: at(key), got: given });
    }
  } else if (Array.isArray(expected) && Array.isArray(got)) {
    expected.forEach((wanted, index) => {
      if (index < got.length) differences(wanted, got[index], `${path}[${index}]`, found);
      else found.push({ path: `${path}[${index}]`, expected: wanted });
    });
    got.slice(expected.length).forEach((given, index) => found.push({ path: `${path}[${expected.length + index}]`, got: given }));
  } else if (typeof expected === 'string' && typeof got === 'string') {
    if (!matchesText(expected, got)) found.push({ path, expected, got });
  } else if (expected !== got) found.push({ path, expected, got });
  return found;
}

function matchesText(expected, got) {
  if (expected.endsWith(free)) {
    const before = expected.slice(0, -free.length);
    return got.startsWith(before) && got.length > before.length;
  }
  if (expected.startsWith(keyed)) {
    // A bare key also stands for more text behind it.
    const isBare = /^[A-Z_]*$/.test(expected.slice(keyed.length));
    if (!isBare) return got === expected;
    return got.startsWith(expected) && !got.slice(expected.length).startsWith('_');
  }
  return expected === got;
}

export function render({ path, ...difference }) {
  const show = (side) => {
    if (!Object.hasOwn(difference, side)) return 'nothing';
    const text = JSON.stringify(difference[side]) ?? 'undefined';
    return text.length > 220 ? `${text.slice(0, 220)}…` : text;
  };
  return `  ${path}: expected ${show('expected')}, got ${show('got')}`;
}
