// The same types for CommonJS; compiled with tsc --strict, never run.

import turnwheel = require('turnwheel');

export const ctx: turnwheel.Context = new turnwheel.Context();
export const opened: Promise<turnwheel.Agent> = ctx.agent('a1');
