// Package lines reads and writes records as the matrix's programs exchange them: one JSON object a line.
package lines

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
)

// Header of a record. A missing value is null.
type Header struct {
	Name  string
	Value []byte
}

// Record as one line. Bytes are base64 in JSON, nil is null.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// MarshalJSON writes a header as [name, value].
func (header Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{header.Name, header.Value})
}

// UnmarshalJSON reads a header as [name, value].
func (header *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&header.Name, &header.Value})
}

// Read takes all records of standard input.
func Read() []Record {
	var records []Record
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	for input.Scan() {
		var record Record
		Must(json.Unmarshal(input.Bytes(), &record))
		records = append(records, record)
	}
	Must(input.Err())
	return records
}

// Print writes one record to standard output.
func Print(record Record) {
	if record.Headers == nil {
		record.Headers = []Header{}
	}
	text, problem := json.Marshal(record)
	Must(problem)
	os.Stdout.Write(append(text, '\n'))
}

// Must ends the program where something went wrong.
func Must(problem error) {
	if problem != nil {
		log.Fatal(problem)
	}
}
