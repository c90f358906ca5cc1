/** A job by a name that has no room in a path, because of a slash: its page has its id instead. */
import { html, useEffect } from "../html.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { go, jobHref, place, to } from "../router.js";
import { useResource } from "../state/resource.js";

export default function NamedJob() {
  const name = place.value.query.get("name") ?? "";
  const found = useResource("/v1/jobs", { name, fields: "row", limit: 1 });
  const job = found.data?.items[0];
  useEffect(() => job && go(jobHref(job), { replace: true }), [job?.job_id]);
  return html`<${Head} title=${name} /><${Loaded} of=${found}>${() => job === undefined && html`<${Empty}>There is no job of this name. <a href=${to("/jobs")}>All jobs</a></${Empty}>`}</${Loaded}>`;
}
