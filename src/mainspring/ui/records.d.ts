/** The records of the API. Made by scripts/ui-types from the OpenAPI document: change the code, then run it. */

export interface ActJobsBody {
  app?: string;
  task?: string;
  tag?: string;
  state?: "active" | "paused";
  queue?: string;
  action: "pause" | "resume" | "trigger";
  jobs?: string[];
  q?: string;
  limit?: number;
  cursor?: string;
  dry_run?: boolean;
  reason?: string;
}

export interface ActRunsBody {
  state?: ("blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded")[];
  job?: string;
  task?: string;
  tag?: string;
  queue?: string;
  worker?: string;
  region?: string;
  key?: string;
  late?: "10m" | "1d" | "1h" | "1m";
  took?: "10m" | "1d" | "1h" | "1m";
  submitted_by?: string;
  since?: string;
  until?: string;
  action: "cancel" | "retry";
  run_ids?: string[];
  error?: string;
  limit?: number;
  cursor?: string;
  dry_run?: boolean;
  reason?: string;
}

export interface ActedJobs {
  action: "pause" | "resume" | "trigger";
  dry_run: boolean;
  matched: number;
  done: number;
  jobs: string[];
  refused: Record<string, string>;
  next: string | null;
}

export interface ActedRuns {
  action: "cancel" | "retry";
  dry_run: boolean;
  matched: number;
  done: number;
  runs: Record<string, string>;
  refused: Record<string, string>;
  next: string | null;
}

export interface Alive {
  status: "alive";
}

export interface AssignBody {
  limit?: number;
  wait?: string | number;
  job_id?: string;
}

export interface Assigned {
  runs: Claim[];
}

export interface Attempt {
  attempt: number;
  worker: string;
  outcome: "cancelled" | "failed" | "lost" | "skipped" | "succeeded" | "timed_out";
  started_at: string | null;
  finished_at: string;
  reason: string;
  error: any;
}

export interface Attempts {
  items: Attempt[];
}

export interface Attention {
  kind: "job-failed" | "job-failing" | "job-missed" | "job-paused" | "no-leader" | "no-worker" | "queue-paused" | "queue-unserved" | "task-unknown";
  state: "failed" | "held" | "missed" | "paused";
  name: string;
  text: string;
  remedy: string;
  since?: string | null;
  job?: string | null;
  run_id?: string | null;
  queue?: string | null;
}

export interface AuditQuery {
  subject?: string;
  target?: string;
  action?: string;
  since?: string;
  until?: string;
  limit?: number;
  cursor?: string;
}

export interface Backfill {
  job_id: string;
  dry_run: boolean;
  count: number;
  items: Backfilled[];
  next: string | null;
}

export interface BackfillBody {
  from: string;
  to: string;
  limit?: number;
  dry_run?: boolean;
  reason?: string;
}

export interface Backfilled {
  fire_at: string;
  before: "cancelled" | "failed" | "fired" | "missed" | "skipped" | "succeeded" | null;
  run_ids: string[];
}

export interface Batch {
  run_ids: string[];
  count: number;
  warnings?: string[];
  tag?: string;
}

export interface BatchBody {
  runs: RunBody[];
}

export interface Blackout {
  kind: "blackout";
  start: string;
  end: string;
}

export interface Calendar {
  name: string;
  timezone: string;
  rules: Record<string, any>[];
}

export interface CalendarBody {
  rules: (Dates | Weekdays | DailyWindow | Blackout | CronRule | Other | Not)[];
  timezone?: string;
}

export interface CalendarChange {
  job: string;
  effect: "added" | "dropped" | "moved";
  at: string | null;
  to: string | null;
  reason: string;
}

export interface CalendarDays {
  items: ExcludedDay[];
  used_by: string[];
  jobs: number;
  calendars: string[];
  partial: boolean;
}

export interface CalendarDaysQuery {
  from?: string;
  to?: string;
}

export interface CalendarPreview {
  items: CalendarChange[];
  moved: number;
  dropped: number;
  added: number;
  jobs: number;
  until: string;
  partial: boolean;
}

export interface CalendarPreviewQuery {
  days?: number;
}

export interface Calendars {
  items: Calendar[];
}

export interface Cancelled {
  run_id: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
}

export interface Cause {
  kind: "calendars" | "cancel-requested" | "claim-expired" | "dependencies" | "dependency" | "done" | "ended" | "expires" | "gate" | "key" | "limit-reached" | "manual" | "no-instant" | "no-scheduler" | "no-worker" | "not-due" | "overlap" | "paused" | "queue-paused" | "queue-unserved" | "region-unserved" | "released" | "task-unknown" | "total-timeout" | "unplanned" | "upstream" | "worker-free" | "workers-busy" | "workers-stopping";
  text: string;
  remedy?: string;
  since?: string | null;
  run_id?: string | null;
  job?: string | null;
  queue?: string | null;
  gate?: string | null;
  used?: number | null;
  capacity?: number | null;
  workers?: string[];
}

export interface Change {
  number: number;
  at: string;
  subject: string;
  action: string;
  target: string;
  before: any;
  after: any;
  request_id: string;
  namespace: string;
}

export interface Claim {
  run_id: string;
  token: number;
  task: string;
  args: any;
  attempt: number;
  job: string | null;
  fire_at: string | null;
  index: number;
  timeout: string | null;
  give_up_at: string | null;
  claimed_until: string | null;
}

export interface Cluster {
  leaders: Term[];
  nodes: Node[];
  terms: Term[];
  changes?: number;
  longest_gap_s?: number | null;
}

export interface ClusterQuery {
  limit?: number;
}

export interface CompleteBody {
  token: number;
  result?: any;
  status?: string;
  output?: any;
}

export interface CompleteJobBody {
  token?: number;
  worker_id?: string;
  result?: any;
  status?: string;
  output?: any;
}

export interface Count {
  count: number;
  at_least: boolean;
}

export interface CountQuery {
  state?: ("blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded")[];
  job?: string;
  task?: string;
  tag?: string;
  queue?: string;
  worker?: string;
  region?: string;
  key?: string;
  late?: "10m" | "1d" | "1h" | "1m";
  took?: "10m" | "1d" | "1h" | "1m";
  submitted_by?: string;
  since?: string;
  until?: string;
}

export interface CronRule {
  kind: "cron";
  expression: string;
}

export interface DailyWindow {
  kind: "daily_window";
  start: string;
  end: string;
}

export interface Dates {
  kind: "dates";
  dates: string[];
}

export interface DeadQuery {
  job?: string;
  task?: string;
  tag?: string;
  limit?: number;
  cursor?: string;
}

export interface ErrorBody {
  message: string;
  type?: string;
  traceback?: string;
}

export interface ErrorGroup {
  error: string;
  type: string;
  message: string;
  place: string;
  count: number;
  first_at: string;
  last_at: string;
  last_run: string;
  trend: number[];
  job_count: number;
}

export interface ErrorGroups {
  items: ErrorGroup[];
  next: string | null;
  counted_until: string | null;
}

export interface ErrorQuery {
  since?: string;
  job?: string;
  task?: string;
  limit?: number;
  cursor?: string;
}

export interface ErrorStory {
  error: string;
  type: string;
  message: string;
  place: string;
  count: number;
  first_at: string;
  last_at: string;
  last_run: string;
  trend: number[];
  job_count: number;
  jobs: string[];
  tasks: string[];
  sample: any;
}

export interface Event {
  position: number | null;
  kind: string;
  at: string;
  namespace: string;
  run_id: string | null;
  job: string | null;
  job_id: string | null;
  task: string | null;
  worker: string | null;
  fire_at: string | null;
  attempt: number | null;
  reason: string;
  duration: string | null;
  count: number | null;
}

export interface EventPage {
  items: Event[];
  next: number | null;
}

export interface EventPageQuery {
  after?: number;
  since?: string;
  kind?: string[];
  job?: string;
  task?: string;
  run?: string;
  worker?: string;
  limit?: number;
}

export interface EventQuery {
  after?: number;
  kind?: string[];
  job?: string;
  task?: string;
  run?: string;
}

export interface ExcludedDay {
  day: string;
  whole: boolean;
  reason: string;
}

export interface FacetQuery {
  of: "app" | "job" | "queue" | "region" | "tag" | "task" | "worker";
  prefix?: string;
}

export interface Facets {
  items: string[];
}

export interface FailBody {
  token: number;
  error: string | ErrorBody;
  retry_after?: string | number;
  final?: boolean;
}

export interface FailJobBody {
  error: string | ErrorBody;
  token?: number;
  worker_id?: string;
  retry_after?: string | number;
  final?: boolean;
}

export interface Fault {
  field: string;
  fault: string;
  remedy: string;
}

export interface FireTime {
  fire_at: string;
  local: string;
  zone: string;
  note: string;
}

export interface FireTimes {
  items: FireTime[];
}

export interface Firing {
  fire_at: string;
  last_at: string | null;
  count: number;
  kind: "after" | "backfill" | "manual" | "scheduled";
  outcome: "cancelled" | "failed" | "fired" | "missed" | "skipped" | "succeeded";
  reason: string;
  run_id: string | null;
  region: string;
  index: number;
  finished_at: string | null;
}

export interface FiringBucket {
  at: string;
  counts: Record<string, number>;
}

export interface FiringCell {
  fire_at: string;
  last_at: string | null;
  count: number;
  outcome: "cancelled" | "failed" | "fired" | "missed" | "skipped" | "succeeded" | "excluded" | "planned";
  reason: string;
  kind: string;
  run_id: string | null;
  region: string;
  index: number;
  late_s: number | null;
  took_s: number | null;
  attempts: number | null;
  note: string;
}

export interface FiringQuery {
  limit?: number;
  cursor?: string;
  region?: string;
}

export interface FiringWindow {
  items: FiringCell[];
  buckets: FiringBucket[];
  bucket: string | null;
  next: string | null;
  partial: boolean;
}

export interface Fleet {
  active: number;
  known: number;
  running: number;
  slots: number;
}

export interface GateUse {
  name: string;
  used: number;
  capacity: number;
  waiting: number;
}

export interface Gates {
  gates: GateUse[];
  lines: LineUse[];
}

export interface GoneFiring {
  job: string;
  fire_at: string;
  outcome: "cancelled" | "failed" | "fired" | "missed" | "skipped" | "succeeded";
  reason: string;
}

export interface Heartbeat {
  held: string[];
  lost: string[];
  cancel: Record<string, string>;
  state: "active" | "draining";
}

export interface HeartbeatBody {
  claims?: HeldClaim[];
}

export interface HeldClaim {
  run_id: string;
  token: number;
}

export interface Job {
  job_id: string;
  name: string;
  task: string;
  state: "active" | "paused";
  schedule: string;
  trigger: Record<string, any>;
  next_fire_at: string | null;
  next_run: string | null;
  last_fire_at: string | null;
  last_run: string | null;
  fired: number;
  paused_at: string | null;
  paused_why: string;
  app: string;
  origin?: "" | "api" | "call" | "cli" | "code";
  namespace: string;
  args: any;
  queue: string;
  priority: number;
  key: string | null;
  limit: number | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  retry: Record<string, any>;
  max_losses: number;
  on_key_failure: "continue" | "stop";
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  policy: Record<string, any>;
  version: number;
  created_at: string;
  updated_at: string;
}

export interface JobBody {
  task?: string | null;
  command?: string | string[] | null;
  args?: Record<string, any> | null;
  type?: string | null;
  payload?: Record<string, any> | null;
  max_retries?: number | null;
  run_at?: string | null;
  at?: string | null;
  executeAt?: string | null;
  execute_at?: string | null;
  priority?: number | null;
  queue?: string | null;
  timeout?: string | number | null;
  retry?: number | RetryBody | null;
  soft_timeout?: string | number | null;
  total_timeout?: string | number | null;
  isolation?: string | null;
  alert?: string | null;
  max_losses?: number | null;
  on_key_failure?: "continue" | "stop" | null;
  under_pressure?: "run" | "wait" | null;
  region_failover?: string | number | null;
  failover_regions?: string[] | null;
  tags?: string[] | null;
  key?: string | null;
  limit?: number | null;
  misfire?: "all" | "once" | "skip" | null;
  grace?: string | number | null;
  catch_up_window?: string | number | null;
  catch_up_limit?: number | null;
  start_deadline?: string | number | null;
  overlap?: "allow" | "forbid" | "queue" | "replace" | null;
  jitter?: string | number | null;
  start_at?: string | null;
  end_at?: string | null;
  max_firings?: number | null;
  calendars?: string[] | null;
  on_excluded?: "next_day" | "skip" | null;
  keep_succeeded?: number | null;
  keep_failed?: number | null;
  regions?: string[] | null;
  completions?: number | null;
  parallelism?: number | null;
  on_dependency_failure?: "fail" | "run" | "skip" | null;
  schedule?: string | null;
  cron?: string | null;
  cronExpression?: string | null;
  every?: string | number | null;
  anchor?: string | null;
  after?: string[] | null;
  dependencies?: string[] | null;
  when?: "all_succeeded" | "any_finished" | null;
  on_failure?: "fail" | "run" | "skip" | null;
  manual?: boolean | null;
  timezone?: string | null;
  tz?: string | null;
  dialect?: "quartz" | "unix" | null;
  targetDataCenters?: string[] | null;
  name: string;
}

export interface JobChange {
  task?: string | null;
  command?: string | string[] | null;
  args?: Record<string, any> | null;
  type?: string | null;
  payload?: Record<string, any> | null;
  max_retries?: number | null;
  run_at?: string | null;
  at?: string | null;
  executeAt?: string | null;
  execute_at?: string | null;
  priority?: number | null;
  queue?: string | null;
  timeout?: string | number | null;
  retry?: number | RetryBody | null;
  soft_timeout?: string | number | null;
  total_timeout?: string | number | null;
  isolation?: string | null;
  alert?: string | null;
  max_losses?: number | null;
  on_key_failure?: "continue" | "stop" | null;
  under_pressure?: "run" | "wait" | null;
  region_failover?: string | number | null;
  failover_regions?: string[] | null;
  tags?: string[] | null;
  key?: string | null;
  limit?: number | null;
  misfire?: "all" | "once" | "skip" | null;
  grace?: string | number | null;
  catch_up_window?: string | number | null;
  catch_up_limit?: number | null;
  start_deadline?: string | number | null;
  overlap?: "allow" | "forbid" | "queue" | "replace" | null;
  jitter?: string | number | null;
  start_at?: string | null;
  end_at?: string | null;
  max_firings?: number | null;
  calendars?: string[] | null;
  on_excluded?: "next_day" | "skip" | null;
  keep_succeeded?: number | null;
  keep_failed?: number | null;
  regions?: string[] | null;
  completions?: number | null;
  parallelism?: number | null;
  on_dependency_failure?: "fail" | "run" | "skip" | null;
  schedule?: string | null;
  cron?: string | null;
  cronExpression?: string | null;
  every?: string | number | null;
  anchor?: string | null;
  after?: string[] | null;
  dependencies?: string[] | null;
  when?: "all_succeeded" | "any_finished" | null;
  on_failure?: "fail" | "run" | "skip" | null;
  manual?: boolean | null;
  timezone?: string | null;
  tz?: string | null;
  dialect?: "quartz" | "unix" | null;
  targetDataCenters?: string[] | null;
  name?: string;
}

export interface JobCounts {
  jobs: number;
  active: number;
  paused: number;
  at_least: boolean;
}

export interface JobQuery {
  app?: string;
  task?: string;
  tag?: string;
  state?: "active" | "paused";
  queue?: string;
  name?: string;
  q?: string;
  last?: boolean;
  recent?: number;
  times?: boolean;
  fields?: "row";
  sort?: "last" | "name" | "next";
  limit?: number;
  cursor?: string;
}

export interface JobRelations {
  upstream: RelatedJob[];
  downstream: RelatedJob[];
}

export interface JobStory {
  job_id: string;
  name: string;
  task: string;
  state: "active" | "paused";
  schedule: string;
  trigger: Record<string, any>;
  next_fire_at: string | null;
  next_run: string | null;
  last_fire_at: string | null;
  last_run: string | null;
  fired: number;
  paused_at: string | null;
  paused_why: string;
  app: string;
  origin?: "" | "api" | "call" | "cli" | "code";
  namespace: string;
  args: any;
  queue: string;
  priority: number;
  key: string | null;
  limit: number | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  retry: Record<string, any>;
  max_losses: number;
  on_key_failure: "continue" | "stop";
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  policy: Record<string, any>;
  version: number;
  created_at: string;
  updated_at: string;
  schedule_text?: string;
  status: "cancelled" | "completed" | "failed" | "pending" | "retrying" | "running" | "scheduled" | "skipped";
  retry_count: number;
  why: string[];
  causes?: Cause[];
}

export interface Leader {
  owner: string;
  term: number;
  since: string;
}

export interface Ledger {
  items: LedgerRow[];
  bucket: string;
  next: string | null;
}

export interface LedgerPageQuery {
  since?: string;
  until?: string;
  bucket?: string;
  limit?: number;
  cursor?: string;
}

export interface LedgerQuery {
  since?: string;
  until?: string;
  outcome?: "cancelled" | "excluded" | "failed" | "fired" | "missed" | "planned" | "skipped" | "succeeded";
  bucket?: string;
  limit?: number;
  cursor?: string;
}

export interface LedgerRow {
  job: string;
  cells: Record<string, Record<string, number>>;
}

export interface Line {
  number: number;
  at: string;
  attempt: number;
  stream: string;
  text: string;
}

export interface LinePlace {
  name: string;
  capacity: number;
  before: number;
  head: string;
}

export interface LineUse {
  name: string;
  capacity: number;
  length: number;
  head: string;
}

export interface Lines {
  items: Line[];
  next: number;
}

export interface LinesBody {
  token: number;
  lines: string[];
  stream?: "log" | "stderr" | "stdout";
}

export interface ListedJob {
  job_id: string;
  name: string;
  task: string;
  state: "active" | "paused";
  schedule: string;
  trigger: Record<string, any>;
  next_fire_at: string | null;
  next_run: string | null;
  last_fire_at: string | null;
  last_run: string | null;
  fired: number;
  paused_at: string | null;
  paused_why: string;
  app: string;
  origin?: "" | "api" | "call" | "cli" | "code";
  namespace: string;
  args?: any;
  queue: string;
  priority: number;
  key: string | null;
  limit: number | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  retry: Record<string, any>;
  max_losses: number;
  on_key_failure: "continue" | "stop";
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  policy: Record<string, any>;
  version: number;
  created_at: string;
  updated_at: string;
  schedule_text?: string;
  last?: Firing | null;
  recent?: ("cancelled" | "failed" | "fired" | "missed" | "skipped" | "succeeded")[];
  took_p50?: number | null;
  late_p50?: number | null;
}

export interface ListedRun {
  run_id: string;
  job: string | null;
  task: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
  reason: string;
  fire_at: string | null;
  due_at: string;
  attempt: number;
  started_at: string | null;
  finished_at: string | null;
  duration: string | null;
  worker: string | null;
  namespace: string;
  queue: string;
  region: string;
  home_region: string;
  moved_because: string;
  priority: number;
  key: string | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  progress: number | null;
  progress_note: string;
  losses: number;
  waits_for: number;
  job_id: string | null;
  index: number;
  created_at: string;
  updated_at: string;
  expires_at: string | null;
  cancel_requested_at: string | null;
  cancel_reason: string;
  retry_of: string | null;
  submitted_by: string | null;
  args?: any;
  result?: any;
  error?: any;
}

export interface Load {
  items: LoadBucket[];
  bucket: string;
  capacity: number;
  jobs: number;
  peak: LoadBucket | null;
  quiet?: QuietPeriod[];
  partial: boolean;
}

export interface LoadAt {
  items: LoadJob[];
  starts: number;
}

export interface LoadAtQuery {
  from: string;
  to: string;
  queue?: string;
  tag?: string;
}

export interface LoadBucket {
  at: string;
  starts: number;
  busy: number;
}

export interface LoadJob {
  name: string;
  starts: number;
  first: string;
  movable: boolean;
}

export interface LoadQuery {
  from?: string;
  to?: string;
  bucket?: string;
  queue?: string;
  tag?: string;
}

export interface LogQuery {
  after?: number;
  before?: number;
  limit?: number;
  tail?: number;
  format?: "text";
  follow?: boolean;
}

export interface Me {
  subject: string;
  open: boolean;
  home: string;
  namespaces: string[];
  permissions: Record<string, string[]>;
  expires_at: string | null;
  version: string;
}

export interface NewJob {
  job_id: string;
  name: string;
  task: string;
  state: "active" | "paused";
  schedule: string;
  trigger: Record<string, any>;
  next_fire_at: string | null;
  next_run: string | null;
  last_fire_at: string | null;
  last_run: string | null;
  fired: number;
  paused_at: string | null;
  paused_why: string;
  app: string;
  origin?: "" | "api" | "call" | "cli" | "code";
  namespace: string;
  args: any;
  queue: string;
  priority: number;
  key: string | null;
  limit: number | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  retry: Record<string, any>;
  max_losses: number;
  on_key_failure: "continue" | "stop";
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  policy: Record<string, any>;
  version: number;
  created_at: string;
  updated_at: string;
  status: "cancelled" | "completed" | "failed" | "pending" | "retrying" | "running" | "scheduled" | "skipped";
  retry_count: number;
  warnings?: string[];
}

export interface NewRun {
  run_id: string;
  job: string | null;
  task: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
  reason: string;
  fire_at: string | null;
  due_at: string;
  attempt: number;
  started_at: string | null;
  finished_at: string | null;
  duration: string | null;
  worker: string | null;
  namespace: string;
  queue: string;
  region: string;
  home_region: string;
  moved_because: string;
  priority: number;
  key: string | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  args: any;
  result: any;
  error: any;
  progress: number | null;
  progress_note: string;
  losses: number;
  waits_for: number;
  job_id: string | null;
  index: number;
  created_at: string;
  updated_at: string;
  expires_at: string | null;
  cancel_requested_at: string | null;
  cancel_reason: string;
  retry_of: string | null;
  submitted_by: string | null;
  warnings?: string[];
}

export interface NextQuery {
  count?: number;
  timezone?: string;
}

export interface Node {
  node: string;
  alive: boolean;
  coordination: string;
  check_in: string;
  started_at: string;
  checked_in_at: string;
  skew_s?: number;
  loops?: Record<string, string>;
}

export interface Not {
  kind: "not";
  rules: (Dates | Weekdays | DailyWindow | Blackout | CronRule | Other | Not)[];
}

export interface Other {
  kind: "calendar";
  calendar: string;
}

export interface OutageBody {
  from: string;
  to: string;
}

export interface Overview {
  at: string;
  leader: Leader | null;
  workers: Fleet;
  counts: RunCounts;
  oldest_due: string | null;
  attention: Attention[];
  running: ListedRun[];
  next: ListedJob[];
  degradation?: "no-waiting" | "normal" | "refusing" | "shedding" | "slow-history";
  given_up?: string;
  pressure?: number;
  breakers?: Record<string, string>;
}

export interface PageQuery {
  limit?: number;
  cursor?: string;
}

export interface Page_Change_ {
  items: Change[];
  next: string | null;
}

export interface Page_Firing_ {
  items: Firing[];
  next: string | null;
}

export interface Page_ListedJob_ {
  items: ListedJob[];
  next: string | null;
}

export interface Page_ListedRun_ {
  items: ListedRun[];
  next: string | null;
}

export interface Peak {
  at: string;
  starts: number;
}

export interface Preview {
  text: string;
  items: FireTime[];
  changes: FireTime[];
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  request_id: string;
  remedy?: string;
  errors?: Fault[];
  firing?: GoneFiring;
}

export interface ProcessVersion {
  process: string;
  kind: "server" | "worker";
  version: string;
  started_at: string | null;
}

export interface ProgressBody {
  token: number;
  fraction: number;
  note?: string;
}

export interface Queue {
  queue: string;
  due: number;
  oldest_due: string | null;
  running: number;
  blocked: number;
  workers: number;
  slots: number;
  busy: number;
  priorities: Record<string, number>;
  regions: QueueRegion[];
  paused_at: string | null;
  paused_why: string;
  accepted_per_minute?: number;
  ended_per_minute?: number;
}

export interface QueueRegion {
  region: string;
  due: number;
  oldest_due: string | null;
  workers: number;
  slots: number;
}

export interface Queues {
  items: Queue[];
}

export interface QuietPeriod {
  at: string;
  until: string;
  starts: number;
}

export interface Ready {
  status: "not ready" | "ready";
  reasons: string[];
  checks: Record<string, string>;
  degradation: "no-waiting" | "normal" | "refusing" | "shedding" | "slow-history";
  pressure: number;
}

export interface ReasonBody {
  reason?: string;
}

export interface ReasonQuery {
  reason?: string;
}

export interface Region {
  region: string;
  workers: number;
  slots: number;
  running: number;
  depth: number;
  lateness: string;
}

export interface Regions {
  items: Region[];
}

export interface Registered {
  worker_id: string;
  heartbeat_every: string;
  claim_ttl: string;
}

export interface RelatedJob {
  name: string;
  how: "after" | "dependency";
  latest_at?: string | null;
  latest_outcome?: "cancelled" | "failed" | "fired" | "missed" | "skipped" | "succeeded" | null;
}

export interface Reported {
  run_id: string;
  verdict: "accepted" | "repeated";
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
}

export interface Rerun {
  count: number;
  runs: Record<string, string>;
  refused: Record<string, string>;
}

export interface RerunBody {
  run_ids?: string[];
  job?: string;
  task?: string;
  tag?: string;
  limit?: number;
  dry_run?: boolean;
}

export interface RetryBody {
  retries?: number;
  policy?: "doubling-1m" | "doubling-2m" | "doubling-30s-to-15m" | "fixed-5m" | "quadrupling-10s";
  delay?: string | number;
  backoff?: "exponential" | "fixed";
  factor?: number;
  delays?: (string | number)[];
  cap?: string | number;
  jitter?: number;
  on?: string[];
  never?: string[];
}

export interface RevokeBody {
  token_id?: string;
  subject?: string;
}

export interface Revoked {
  revoked: string[];
}

export interface Run {
  run_id: string;
  job: string | null;
  task: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
  reason: string;
  fire_at: string | null;
  due_at: string;
  attempt: number;
  started_at: string | null;
  finished_at: string | null;
  duration: string | null;
  worker: string | null;
  namespace: string;
  queue: string;
  region: string;
  home_region: string;
  moved_because: string;
  priority: number;
  key: string | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  args: any;
  result: any;
  error: any;
  progress: number | null;
  progress_note: string;
  losses: number;
  waits_for: number;
  job_id: string | null;
  index: number;
  created_at: string;
  updated_at: string;
  expires_at: string | null;
  cancel_requested_at: string | null;
  cancel_reason: string;
  retry_of: string | null;
  submitted_by: string | null;
}

export interface RunBody {
  task?: string | null;
  command?: string | string[] | null;
  args?: Record<string, any> | null;
  type?: string | null;
  payload?: Record<string, any> | null;
  max_retries?: number | null;
  run_at?: string | null;
  at?: string | null;
  executeAt?: string | null;
  execute_at?: string | null;
  priority?: number | null;
  queue?: string | null;
  timeout?: string | number | null;
  retry?: number | RetryBody | null;
  soft_timeout?: string | number | null;
  total_timeout?: string | number | null;
  isolation?: string | null;
  alert?: string | null;
  max_losses?: number | null;
  on_key_failure?: "continue" | "stop" | null;
  under_pressure?: "run" | "wait" | null;
  region_failover?: string | number | null;
  failover_regions?: string[] | null;
  tags?: string[] | null;
  key?: string | null;
  region?: string | null;
  delay?: string | number | null;
  expires?: string | number | null;
  after?: string[] | null;
  when?: "all_succeeded" | "any_finished" | null;
  on_failure?: "fail" | "run" | "skip" | null;
  unique?: string | null;
  dependencies?: string[] | null;
}

export interface RunCounts {
  due: number;
  blocked: number;
  later: number;
  succeeded: number;
  failed: number;
  missed: number;
}

export interface RunEventQuery {
  after?: number;
  limit?: number;
}

export interface RunQuery {
  state?: ("blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded")[];
  job?: string;
  task?: string;
  tag?: string;
  queue?: string;
  worker?: string;
  region?: string;
  key?: string;
  late?: "10m" | "1d" | "1h" | "1m";
  took?: "10m" | "1d" | "1h" | "1m";
  submitted_by?: string;
  since?: string;
  until?: string;
  id?: string;
  error?: string;
  fields?: "row";
  limit?: number;
  cursor?: string;
}

export interface RunRelations {
  upstream: ListedRun[];
  downstream: ListedRun[];
  siblings: ListedRun[];
  retries: ListedRun[];
  lines: LinePlace[];
  gate: string | null;
}

export interface RunStatus {
  run_id: string;
  namespace: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
  reason: string;
  attempt: number;
  worker: string | null;
  job: string | null;
  task: string | null;
  as_of: string;
}

export interface RunStory {
  run_id: string;
  job: string | null;
  task: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
  reason: string;
  fire_at: string | null;
  due_at: string;
  attempt: number;
  started_at: string | null;
  finished_at: string | null;
  duration: string | null;
  worker: string | null;
  namespace: string;
  queue: string;
  region: string;
  home_region: string;
  moved_because: string;
  priority: number;
  key: string | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  args: any;
  result: any;
  error: any;
  progress: number | null;
  progress_note: string;
  losses: number;
  waits_for: number;
  job_id: string | null;
  index: number;
  created_at: string;
  updated_at: string;
  expires_at: string | null;
  cancel_requested_at: string | null;
  cancel_reason: string;
  retry_of: string | null;
  submitted_by: string | null;
  why: string[];
  causes?: Cause[];
  spent?: Spent[];
}

export interface ScheduleBody {
  type: string;
  executeAt: string;
  priority?: number;
  payload?: Record<string, any>;
}

export interface ScheduledRun {
  run_id: string;
  job: string | null;
  task: string;
  state: "blocked" | "cancelled" | "failed" | "pending" | "running" | "skipped" | "succeeded";
  reason: string;
  fire_at: string | null;
  due_at: string;
  attempt: number;
  started_at: string | null;
  finished_at: string | null;
  duration: string | null;
  worker: string | null;
  namespace: string;
  queue: string;
  region: string;
  home_region: string;
  moved_because: string;
  priority: number;
  key: string | null;
  timeout: string | null;
  soft_timeout: string | null;
  total_timeout: string | null;
  retries: number;
  isolation: string | null;
  under_pressure: "run" | "wait";
  region_failover: string | null;
  failover_regions: string[];
  tags: string[];
  args: any;
  result: any;
  error: any;
  progress: number | null;
  progress_note: string;
  losses: number;
  waits_for: number;
  job_id: string | null;
  index: number;
  created_at: string;
  updated_at: string;
  expires_at: string | null;
  cancel_requested_at: string | null;
  cancel_reason: string;
  retry_of: string | null;
  submitted_by: string | null;
  status: "scheduled";
  warnings?: string[];
}

export interface ServiceLevel {
  priority: number;
  within: string | null;
  starts: number;
  late: number;
  met: number | null;
  late_p50: number | null;
  late_p99: number | null;
}

export interface ServiceLevels {
  items: ServiceLevel[];
  since: string;
  until: string;
  counted_to: number | null;
  counted_until: string | null;
}

export interface SessionBody {
  token: string;
}

export interface ShownSetting {
  name: string;
  value: string;
  default: string;
  is_default: boolean;
  variable: string;
  meaning: string;
}

export interface ShownSettings {
  items: ShownSetting[];
}

export interface SimulateBody {
  job?: string;
  change?: JobChange;
  from?: string;
  to?: string;
  outages?: OutageBody[];
  took?: string | number;
}

export interface SimulatedLoad {
  at: string;
  others: number;
  starts: number;
  busy: number;
  capacity: number;
}

export interface Simulation {
  items: FiringCell[];
  counts: Record<string, number>;
  schedule: string;
  took: "given" | "history" | "unknown";
  took_s: number | null;
  most_at_once: number;
  longest_wait_s: number;
  load: SimulatedLoad | null;
  partial: boolean;
}

export interface Span {
  run_id: string;
  name: string;
  worker: string | null;
  began_at: string;
  ended_at: string | null;
  state: string;
  attempt: number | null;
  queue?: string | null;
  tags?: string[];
}

export interface SpanQuery {
  since?: string;
  until?: string;
}

export interface Spans {
  items: Span[];
  partial: boolean;
  events?: number;
  left_out?: number;
}

export interface Spent {
  kind: "attempt" | "waiting";
  text: string;
  state: string;
  seconds: number;
  share: number;
}

export interface Spread {
  edits: SpreadEdit[];
  before: Peak | null;
  after: Peak | null;
  staying: StayingJob[];
  partial: boolean;
}

export interface SpreadBody {
  from?: string;
  to?: string;
  within?: string;
  target?: number;
  queue?: string;
  tag?: string;
}

export interface SpreadEdit {
  job: string;
  version: number;
  minutes: number;
  schedule: string;
  to: string;
  change: Record<string, any>;
  reason: string;
}

export interface StatusQuery {
  fresh?: boolean;
}

export interface StayingJob {
  job: string;
  reason: string;
}

export interface SyncBody {
  app: string;
  jobs: JobBody[];
  source?: string;
}

export interface Synced {
  created: string[];
  updated: string[];
  unchanged: string[];
  undeclared: string[];
  resumed?: string[];
  paused?: string[];
  removed?: string[];
}

export interface Tallies {
  items: TallyBucket[];
  bucket: string;
  counted_to: number | null;
  counted_until: string | null;
  partial: boolean;
  total?: TallyBucket | null;
}

export interface TallyBucket {
  at: string;
  name: string;
  succeeded?: number;
  failed?: number;
  cancelled?: number;
  skipped?: number;
  missed?: number;
  late_p50?: number | null;
  late_p99?: number | null;
  took_p50?: number | null;
  took_p95?: number | null;
  accepted?: number | null;
}

export interface TallyQuery {
  since?: string;
  until?: string;
  bucket?: string;
  by?: "job" | "queue" | "task";
  job?: string;
  task?: string;
  queue?: string;
  whole?: boolean;
}

export interface TaskStory {
  task: string;
  signature: string;
  arguments: Record<string, any>;
  queue: string;
  priority: number;
  limit: number | null;
  workers: string[];
}

export interface TaskSummary {
  task: string;
  workers: string[];
  queues: string[];
}

export interface Tasks {
  items: TaskSummary[];
}

export interface Term {
  name: string;
  number: number;
  owner: string;
  began_at: string;
  ended_at: string | null;
  reason: string;
  gap_s?: number | null;
}

export interface TermQuery {
  since?: string;
  limit?: number;
}

export interface Terms {
  items: Term[];
}

export interface TimelineQuery {
  since?: string;
  until?: string;
  jobs?: boolean;
}

export interface TriggerBody {
  request_id?: string;
  reason?: string;
}

export interface Versions {
  version: string;
  schema: number;
  newest_schema: number;
  processes: ProcessVersion[];
}

export interface WaitQuery {
  timeout?: string;
}

export interface Weekdays {
  kind: "weekdays";
  days: string[];
}

export interface Worker {
  worker: string;
  state: "active" | "dead" | "draining" | "stopped";
  host: string;
  pid: number;
  app: string;
  namespace: string;
  queues: string[];
  regions: string[];
  tasks: string[];
  running: number;
  concurrency: number;
  started_at: string;
  heartbeat_at: string;
  drain_requested_at?: string | null;
  version?: string;
  pools?: Record<string, number>;
}

export interface WorkerBody {
  tasks: string[];
  name?: string;
  queues?: string[];
  regions?: string[];
  concurrency?: number;
}

export interface WorkerStatus {
  worker: string;
  namespace: string;
  state: "active" | "dead" | "draining" | "stopped";
  as_of: string;
}

export interface Workers {
  items: Worker[];
}
