module redrive.example/reporting

go 1.24

require github.com/twmb/franz-go v1.21.4
