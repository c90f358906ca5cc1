/** Templates and state: the only file that imports the libraries' view layer. */
import { Fragment, h, render } from "./libraries/preact.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./libraries/hooks.js";
import { batch, computed, effect, signal } from "./libraries/signals.js";
import htm from "./libraries/htm.js";

export const html = htm.bind(h);
export { Fragment, render, useEffect, useLayoutEffect, useMemo, useRef, useState, batch, computed, effect, signal };
