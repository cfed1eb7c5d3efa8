/** Merges the files of an assignment with DuckDB: columns by field id, positional deletes applied. */

import { type DuckDBConnection } from "@duckdb/node-api";
import { mkdir, rm } from "node:fs/promises";

export interface Field { id: number; name: string; type: unknown }
export interface Assignment {
  attempt: string;
  fencing_token: number;
  lease_seconds: number;
  task: string;
  gain: string;
  table: { name: string; format_version: number; columns: { fields: Field[] } };
  directory: string;
  target_bytes: number;
  group: {
    files: { path: string; size: number; rows: number; file_format: string }[];
    deletes: { path: string; kind: string }[];
  };
}
export interface Output { path: string; size: number; rows: number }

const TYPES: Record<string, string> = {
  boolean: "BOOLEAN", int: "INTEGER", long: "BIGINT", float: "FLOAT", double: "DOUBLE",
  date: "DATE", time: "TIME", timestamp: "TIMESTAMP", timestamptz: "TIMESTAMPTZ",
  string: "VARCHAR", uuid: "UUID", binary: "BLOB",
};

/** A path of this machine; the table may write its own as URLs. */
const local = (path: string) => path.replace(/^file:(\/\/)?/, "");
const text = (value: string) => `'${value.replaceAll("'", "''")}'`;
const name = (value: string) => `"${value.replaceAll('"', '""')}"`;
const list = (paths: string[]) => `[${paths.map((path) => text(local(path))).join(", ")}]`;

function type(field: Field): string {
  const found = typeof field.type === "string" ? field.type : "a nested type";
  const decimal = /^decimal\((\d+), ?(\d+)\)$/.exec(found);
  const known = decimal ? `DECIMAL(${decimal[1]}, ${decimal[2]})` : TYPES[found];
  if (!known) throw new Error(`column ${field.name}: this worker cannot write ${found}`);
  return known;
}

function query({ table, group }: Assignment): string {
  const { fields } = table.columns;
  const columns = fields.map((field) => name(field.name)).join(", ");
  const schema = fields.map((field) =>
    `${field.id}: {name: ${text(field.name)}, type: ${text(type(field))}, default_value: NULL}`);
  const read = (paths: string[]) =>
    `read_parquet(${list(paths)}, schema = MAP {${schema.join(", ")}})`;
  if (!group.deletes.length)
    return `SELECT ${columns} FROM ${read(group.files.map((file) => file.path))}`;
  // DuckDB numbers the rows of a file only without a schema by ids, so each file is read alone.
  return group.files.map((file) => `
    SELECT ${columns} FROM ${read([file.path])} POSITIONAL JOIN
      (SELECT file_row_number AS "#row" FROM read_parquet(${list([file.path])}, file_row_number = true))
    WHERE "#row" NOT IN (SELECT pos FROM read_parquet(${list(group.deletes.map((one) => one.path))})
      WHERE file_path = ${text(file.path)})`).join(" UNION ALL ");
}

/** Refuses files without field ids, in which DuckDB would find nothing but nulls. */
async function requireFieldIds(connection: DuckDBConnection, { group }: Assignment) {
  const paths = list(group.files.map((file) => file.path));
  const nameless = await connection.runAndReadAll(
    `SELECT file_name FROM parquet_schema(${paths}) GROUP BY file_name HAVING count(field_id) = 0`);
  for (const row of nameless.getRowObjects())
    throw new Error(`${String(row["file_name"])} has no field ids, which this worker needs`);
}

/** Writes the rows below the directory of the assignment. */
export async function merge(connection: DuckDBConnection, work: Assignment): Promise<Output[]> {
  const { group, table } = work;
  if (table.format_version > 2) throw new Error("this worker keeps no row ids of format 3");
  if (group.files.some((file) => file.file_format !== "parquet"))
    throw new Error("this worker reads Parquet alone");
  if (group.deletes.some((one) => one.kind !== "position"))
    throw new Error("this worker applies no equality deletes");
  await requireFieldIds(connection, work);
  await mkdir(local(work.directory), { recursive: true });
  const bytes = group.files.reduce((sum, file) => sum + file.size, 0);
  const ids = table.columns.fields.map((field) => `${name(field.name)}: ${field.id}`).join(", ");
  const whole = bytes < 1.8 * work.target_bytes;
  const to = whole ? `${work.directory}/merged.parquet` : `${work.directory}/parts`;
  const split = whole ? "" : `, FILE_SIZE_BYTES ${work.target_bytes}`;
  const written = await connection.runAndReadAll(
    `COPY (${query(work)}) TO ${text(local(to))} ` +
    `(FORMAT parquet, COMPRESSION zstd, FIELD_IDS {${ids}}, RETURN_STATS${split})`);
  const outputs = written.getRowObjects().map((row) => ({
    path: work.directory + String(row["filename"]).slice(local(work.directory).length),
    size: Number(row["file_size_bytes"]), rows: Number(row["count"]),
  }));
  for (const empty of outputs.filter((output) => !output.rows)) await rm(local(empty.path));
  return outputs.filter((output) => output.rows);
}

/** Removes what was written below the directory of an assignment. */
export const remove = (work: Assignment) =>
  rm(local(work.directory), { recursive: true, force: true });
