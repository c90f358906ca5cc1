/** Each state and outcome: its glyph, its word and its colour. No meaning rests on colour alone. */

/** @typedef {{ glyph: string, word: string, tone: "neutral" | "running" | "succeeded" | "warning" | "failed" | "held" }} Look */

/** @type {Record<string, Look>} */
const LOOKS = {
  blocked: { glyph: "◇", word: "blocked", tone: "held" },
  held: { glyph: "◇", word: "held", tone: "held" },
  pending: { glyph: "◔", word: "pending", tone: "neutral" },
  running: { glyph: "▶", word: "running", tone: "running" },
  succeeded: { glyph: "✓", word: "succeeded", tone: "succeeded" },
  failed: { glyph: "✕", word: "failed", tone: "failed" },
  cancelled: { glyph: "⊘", word: "cancelled", tone: "neutral" },
  skipped: { glyph: "↷", word: "skipped", tone: "neutral" },
  missed: { glyph: "!", word: "missed", tone: "warning" },
  late: { glyph: "◷", word: "ran late", tone: "warning" },
  retrying: { glyph: "↻", word: "retrying", tone: "warning" },
  fired: { glyph: "▶", word: "fired", tone: "running" },
  planned: { glyph: "○", word: "planned", tone: "neutral" },
  excluded: { glyph: "·", word: "excluded", tone: "neutral" },
  "clock-change": { glyph: "◐", word: "planned, at a clock change", tone: "neutral" },
  active: { glyph: "✓", word: "active", tone: "succeeded" },
  paused: { glyph: "‖", word: "paused", tone: "held" },
  draining: { glyph: "↻", word: "draining", tone: "warning" },
  stopped: { glyph: "⊘", word: "stopped", tone: "neutral" },
  dead: { glyph: "✕", word: "dead", tone: "failed" },
  leads: { glyph: "▶", word: "leads", tone: "running" },
  stands_by: { glyph: "◔", word: "stands by", tone: "neutral" },
  timed_out: { glyph: "✕", word: "timed out", tone: "failed" },
  lost: { glyph: "!", word: "lost", tone: "warning" },
};

/** @param {string} state @returns {Look} */
export function lookOf(state) {
  return LOOKS[state] ?? { glyph: "?", word: state, tone: "neutral" };
}

export const STATES = Object.keys(LOOKS);
